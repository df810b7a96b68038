"""A folder with a tiny model's configuration and data, and the binary run in it."""
import os
import subprocess

STEPS = 3
RUN = f"""model:
  hidden_size: 32
  num_layers: 2
  num_heads: 2
  intermediate_size: 64
data:
  path: tokens
  sequence_length: 16
training:
  max_steps: {STEPS}
"""
# The same on the command line, beside a configuration that says nothing of it.
SETTINGS = ["model.hidden_size=32", "model.num_layers=2", "model.num_heads=2", "model.intermediate_size=64",
            "data.sequence_length=16", f"training.max_steps={STEPS}", "training.compute_threads=1"]


class Sandbox:
    def __init__(self, folder, binary):
        self.folder = folder
        self.environment = {**os.environ, "PATH": binary + os.pathsep + os.environ["PATH"], "OMP_NUM_THREADS": "1",
                            "XDG_CACHE_HOME": os.path.join(folder, "cache")}
        for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"):
            self.environment.pop(name, None)
        self.write("run.yaml", RUN)
        self.write("my-text/book.jsonl", "".join(
            f'{{"text": "Line {line} says little, and line {line * 7 % 900} says no more."}}\n' for line in range(900)))
        self.must("trireme data prepare my-text --output tokens --held-out 0.1")

    def write(self, name, text):
        path = os.path.join(self.folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)

    def run(self, command, folder="."):
        return subprocess.run(["sh", "-c", command], cwd=os.path.join(self.folder, folder), env=self.environment,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=240, check=False)

    def must(self, command, folder="."):
        result = self.run(command, folder)
        assert result.returncode == 0, f"$ {command}\nexit code {result.returncode}\n{result.stdout}"
        return result
