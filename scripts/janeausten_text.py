#!/usr/bin/env python3
"""janeausten_text.py PACKAGE OUTPUT: the six novels of Jane Austen as JSONL, one chapter a line, for the quickstart.

PACKAGE is the unpacked Debian package r-cran-janeaustenr. Its text lies in an R lazy-load database: a row of chunks, each a 4-byte
length and a zlib stream, which holds one serialised R object; the novels are the vectors of strings among them, a string a line.
"""

import hashlib
import json
import os
import pathlib
import re
import struct
import sys
import zlib

DATABASE = "usr/lib/R/site-library/janeaustenr/data/Rdata.rdb"
TEXT_MD5 = "fe08e020715c1c6423c7720785918e5c"  # of the novels joined by blank lines; the split below is written for this text
STRING_VECTOR = 16  # R's type number
HEADING = re.compile(r"^chapter ([ivxlc]+|\d+)$", re.IGNORECASE)
# What stands between the chapters and is not prose.
MARK = re.compile(r"^\(?(end of )?volume (the )?(one|two|[ivxlc]+)\.?\)?$|^finis$|^the end$", re.IGNORECASE)
AFTERWORD = "A NOTE ON THE TEXT"


def chunks(database):
    """Yields each decompressed chunk of a lazy-load database."""
    position = 0
    while position < len(database):
        stream = zlib.decompressobj()
        yield stream.decompress(database[position + 4 :])
        position = len(database) - len(stream.unused_data)


def string_vector(chunk):
    """The strings of a serialised R string vector, or None for any other object."""
    position = 2  # the format's letter and a line feed
    (version,) = struct.unpack_from(">i", chunk, position)
    position += 12
    if version == 3:  # names its encoding
        position += 4 + struct.unpack_from(">i", chunk, position)[0]
    flags, count = struct.unpack_from(">ii", chunk, position)
    position += 8
    if flags & 255 != STRING_VECTOR:
        return None
    strings = []
    for _ in range(count):
        (length,) = struct.unpack_from(">i", chunk, position + 4)
        position += 8
        size = max(length, 0)  # -1 marks a missing string
        strings.append(chunk[position : position + size].decode("utf-8"))
        position += size
    return strings


def chapters(lines):
    """Yields (heading, text) of each chapter; what precedes the first and follows the last is left out."""
    heading, body = None, []
    for line in [*lines, None]:
        is_end = line is None or line.strip() == AFTERWORD
        if is_end or HEADING.match(line.strip()):
            if heading:
                yield heading, "\n".join(body).strip("\n") + "\n"
            heading, body = None if is_end else line.strip(), []
        elif heading and not MARK.match(line.strip()):
            body.append(line.rstrip())


def main(package, output):
    found = (string_vector(chunk) for chunk in chunks(pathlib.Path(package, DATABASE).read_bytes()))
    novels = [lines for lines in found if lines is not None]
    digest = hashlib.md5("\n\n".join("\n".join(lines) for lines in novels).encode()).hexdigest()
    if digest != TEXT_MD5:
        sys.exit(f"janeausten_text: the text of this package has MD5 {digest}, not {TEXT_MD5}: use version 1.0.0-1 of r-cran-janeaustenr")
    temporary = f"{output}.tmp-{os.getpid()}"
    count = 0
    with open(temporary, "w", encoding="utf-8") as file:
        for lines in novels:
            title = lines[0].strip().title().replace(" And ", " and ")
            for heading, text in chapters(lines):
                record = {"title": title, "chapter": f"Chapter {heading.split()[1]}", "text": text}
                file.write(json.dumps(record, ensure_ascii=False) + "\n")
                count += 1
    os.replace(temporary, output)
    print(f"{count} chapters of {len(novels)} novels: {output}")


if __name__ == "__main__":
    main(*sys.argv[1:])
