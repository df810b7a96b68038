"""unpack_wheel.py WHEEL FOLDER: unpacks a wheel with its file times and modes, so that a second unpacking rebuilds nothing."""

import os
import sys
import time
import zipfile


def unpack(wheel, folder):
    with zipfile.ZipFile(wheel) as archive:
        for member in archive.infolist():
            path = archive.extract(member, folder)
            if member.is_dir():
                continue
            mode = (member.external_attr >> 16) & 0o777
            os.chmod(path, (mode or 0o644) | 0o600)
            modified = time.mktime(member.date_time + (0, 0, -1))
            os.utime(path, (modified, modified))


if __name__ == "__main__":
    unpack(sys.argv[1], sys.argv[2])
