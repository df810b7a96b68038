"""The quickstart's text: R's string vectors are read as R writes them, and novels fall into chapters. Runs without a build: python3 FILE."""

import importlib.util
import pathlib
import struct
import subprocess
import sys
import tempfile
import unittest
import zlib

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "scripts" / "janeausten_text.py"
spec = importlib.util.spec_from_file_location("janeausten_text", SCRIPT)
text = importlib.util.module_from_spec(spec)
spec.loader.exec_module(text)


def serialised(strings, version=3, kind=16):
    """What R's serialize() writes for a vector of strings (None is a missing one), big-endian."""
    data = b"X\n" + struct.pack(">iii", version, 0x40000, 0x30500)
    if version == 3:
        data += struct.pack(">i", 5) + b"UTF-8"
    data += struct.pack(">ii", kind, len(strings))
    for string in strings:
        encoded = (string or "").encode()
        data += struct.pack(">ii", 0x40009, -1 if string is None else len(encoded)) + encoded
    return data


def database(*chunks):
    return b"".join(struct.pack(">i", len(chunk)) + zlib.compress(chunk) for chunk in chunks)


class JaneAustenText(unittest.TestCase):
    def test_string_vectors_of_both_formats_are_read(self):
        for version in (2, 3):
            self.assertEqual(text.string_vector(serialised(["Emma", "", "à", None], version)), ["Emma", "", "à", ""])

    def test_other_objects_are_passed_over(self):
        self.assertIsNone(text.string_vector(serialised([], kind=13)))

    def test_a_database_is_cut_into_its_chunks(self):
        self.assertEqual(list(text.chunks(database(b"one", b"two" * 1000))), [b"one", b"two" * 1000])

    def test_a_novel_falls_into_chapters_without_its_headings(self):
        novel = ["EMMA", "", "VOLUME I", "", "CHAPTER I", "", "First.", "", "Still first.", "VOLUME II", "", "Chapter 2", "Second.", "THE END"]
        self.assertEqual(list(text.chapters(novel)), [("CHAPTER I", "First.\n\nStill first.\n"), ("Chapter 2", "Second.\n")])

    def test_what_follows_the_last_chapter_is_left_out(self):
        novel = ["CHAPTER 1", "Prose.", "", "A NOTE ON THE TEXT", "", "Written in 1797."]
        self.assertEqual(list(text.chapters(novel)), [("CHAPTER 1", "Prose.\n")])

    def test_another_text_is_refused_and_leaves_no_file(self):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder, text.DATABASE)
            file.parent.mkdir(parents=True)
            file.write_bytes(database(serialised(["EMMA", "CHAPTER I", "Altered."])))
            output = pathlib.Path(folder, "austen.jsonl")
            result = subprocess.run([sys.executable, SCRIPT, folder, output], capture_output=True, text=True, check=False)
            self.assertEqual(result.returncode, 1)
            self.assertIn("has MD5", result.stderr)
            self.assertEqual(list(pathlib.Path(folder).glob("austen*")), [])


if __name__ == "__main__":
    unittest.main()
