"""The folder order is enforced: each kind of offence is found, and nothing else is. Runs without a build: python3 FILE."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "scripts" / "check_folder_order.py"


def check(files):
    """Runs the script on a tree of {path: text}; returns (exit code, output lines)."""
    with tempfile.TemporaryDirectory() as folder:
        for path, text in files.items():
            file = pathlib.Path(folder, path)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
        result = subprocess.run([sys.executable, SCRIPT, folder], capture_output=True, text=True, check=False)
        return result.returncode, (result.stdout + result.stderr).splitlines()


class FolderOrder(unittest.TestCase):
    def assert_offence(self, path, text, *words):
        code, lines = check({path: text})
        self.assertEqual(code, 1, lines)
        self.assertEqual(len(lines), 1, lines)
        for word in (path, *words):
            self.assertIn(word, lines[0])

    def assert_clean(self, path, text):
        self.assertEqual(check({path: text}), (0, []))

    def test_a_folder_may_include_itself_and_those_before_it(self):
        self.assert_clean("src/engine/executor.cpp", '#include "engine/executor.h"\n#include "schedule/lower.h"\n#include <vector>\n')

    def test_a_folder_may_not_include_a_later_one(self):
        self.assert_offence("src/schedule/build.h", '#pragma once\n#include "chain/unit.h"\n', ":2:", "schedule comes before chain")

    def test_spaces_do_not_hide_an_include(self):
        self.assert_offence("src/base/file.cpp", '  #  include "cli/commands.h"\n', "base comes before cli")

    def test_an_include_names_its_folder(self):
        self.assert_offence("src/base/file.cpp", '#include "file.h"\n', "folder/file.h")

    def test_a_folder_must_be_in_the_order(self):
        self.assert_offence("src/misc/things.h", "#pragma once\n", "src/misc is not in the order")

    def test_main_may_include_all(self):
        self.assert_clean("src/main.cpp", '#include "cli/commands.h"\n#include "base/error.h"\n')

    def test_the_catch_all_headers_are_banned_everywhere_but_in_the_module_adapter(self):
        for header in ("torch/torch.h", "ATen/ATen.h"):
            self.assert_offence("src/kernels/torch/gemm.cpp", f"#include <{header}>\n", header, "banned")
            self.assert_offence("tests/kernels/gemm_test.cpp", f"#include <{header}>\n", header, "banned")
            self.assert_clean("src/models/module.cpp", f"#include <{header}>\n")

    def test_libtorch_stays_in_its_library(self):
        self.assert_offence("src/comm/collectives.cpp", "#include <torch/csrc/distributed/c10d/Store.hpp>\n", "LibTorch")
        self.assert_offence("src/chain/tensor.h", "#include <ATen/core/Tensor.h>\n", "LibTorch")
        self.assert_clean("src/comm/torch/store.cpp", "#include <torch/csrc/distributed/c10d/TCPStore.hpp>\n")
        self.assert_clean("src/kernels/torch/gemm.cpp", "#include <ATen/ops/mm.h>\n")
        self.assert_offence("src/kernels/cpu/gemm.cpp", "#include <ATen/ops/mm.h>\n", "LibTorch")


if __name__ == "__main__":
    unittest.main()
