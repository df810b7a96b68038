"""The guides of ../shared/guides: what they print, by file and line. Nothing of them is kept here."""
import ast
import os
import re
import sys
from dataclasses import dataclass

SKIPPED = 77


def folder(source):
    return os.environ.get("TRIREME_GUIDES") or os.path.join(source, "..", "shared", "guides")


def pages(source):
    """[(name, lines)] of the guides; ends the test as skipped where there are none."""
    path = folder(source)
    names = sorted(name for name in os.listdir(path) if name.endswith(".txt")) if os.path.isdir(path) else []
    if not names:
        print(f"skipped: no guides in {path}")
        sys.exit(SKIPPED)
    result = []
    for name in names:
        with open(os.path.join(path, name), encoding="utf-8") as file:
            result.append((name, file.read().split("\n")))
    return result


@dataclass
class Block:
    """A fenced listing: its language ("" where it has none), the number of its first line, its text."""
    page: str
    language: str
    line: int
    text: str


def blocks(page, lines):
    result, begin = [], None
    for number, line in enumerate(lines, 1):
        if not line.startswith("```"):
            continue
        if begin is None:
            begin, language = number, line[3:].strip()
        else:
            result.append(Block(page, language, begin + 1, "\n".join(lines[begin:number - 1])))
            begin = None
    return result


def prose(lines):
    """(line, text) of what stands in `...` outside of listings."""
    fenced = False
    for number, line in enumerate(lines, 1):
        if line.startswith("```"):
            fenced = not fenced
        elif not fenced:
            for word in re.findall(r"`([^`]+)`", line):
                yield number, word


@dataclass(frozen=True)
class Item:
    """kind: command, flag, variable, key, call. text: as the page of comparisons must quote it."""
    page: str
    line: int
    kind: str
    text: str


def shell_items(block):
    text = re.sub(r"\\\n", lambda _: " \x00", block.text)  # a continued line is one command
    line = block.line
    for command in text.split("\n"):
        yield from command_items(block.page, line, command.replace("\x00", ""))
        line += 1 + command.count("\x00")


# Programs whose first words are part of the command.
SUBCOMMANDS = {"conda": 1, "pip": 1, "make": 1, "module": 1, "source": 1, "bash": 1, "sbatch": 0, "watch": 0}


def command_items(page, line, command):
    if command.startswith("#SBATCH "):
        yield Item(page, line, "flag", "#SBATCH " + command.split()[1].split("=")[0])
        return
    command = command.split("#")[0].strip()
    if command.startswith("export "):
        yield Item(page, line, "variable", command.split()[1].split("=")[0])
        command = command.partition("$(")[2].rstrip(")")
    words = command.split()
    if not words:
        return
    if words[0] == "srun":
        yield Item(page, line, "command", "srun")
        words = words[1:]
    program = words[0]
    if program == "python" and len(words) > 2 and words[2][0].isalpha() and words[1].endswith(".py"):
        name = " ".join(words[1:3])  # python SCRIPT ACTION
    elif program == "python":
        name = " ".join(words[:2])
    else:
        name = " ".join(words[:1 + SUBCOMMANDS.get(program, 0)])
    yield Item(page, line, "command", name)
    launcher = {"torchrun": "torchrun", "deepspeed": "deepspeed"}.get(program)
    in_script = False
    for word in words[1:]:
        in_script = in_script or word.endswith(".py")
        if word.startswith("--"):
            flag = word.split("=")[0]
            yield Item(page, line, "flag", f"{launcher} {flag}" if launcher and not in_script else flag)


KEY = re.compile(r"""^\s*(?:-\s+)?["']?([A-Za-z_][\w]*)["']?\s*:(?=\s|$)""")


def yaml_items(block):
    stack = []
    for offset, line in enumerate(block.text.split("\n")):
        found = KEY.match(line)
        if not found or line.lstrip().startswith("#"):
            continue
        indent = len(line) - len(line.lstrip())
        while stack and stack[-1][0] >= indent:
            stack.pop()
        stack.append((indent, found.group(1)))
        yield Item(block.page, block.line + offset, "key", ".".join(name for _, name in stack))


def json_items(block):
    """Keys of a JSON text or a part of one, with dots from its root."""
    path, last, line = [], None, block.line
    for token in re.finditer(r"""\n|\#.*|["']((?:[^"'\\]|\\.)*)["']\s*(:)?|[{}]""", block.text):
        text = token.group(0)
        if text == "\n":
            line += 1
        elif token.group(2):
            last = token.group(1)
            yield Item(block.page, line, "key", ".".join([*path, last]))
        elif text == "{":
            path = [*path, last] if last else path
            last = None
        elif text == "}":
            path, last = path[:-1], None


def dotted(node):
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    if isinstance(node, ast.Call):
        return f"{dotted(node.func)}()"
    return "_"


BUILT_IN = {"print", "int", "len", "range", "enumerate", "super", "super().__init__"}
# What listings that import nothing call by the names of those before them.
ALIASES = {"dist": "torch.distributed", "mp": "torch.multiprocessing", "nn": "torch.nn",
           "DDP": "DistributedDataParallel", "FSDP": "FullyShardedDataParallel"}


def constants(tree, aliases):
    """Attributes of modules and imported names that nothing calls: torch.float16, ShardingStrategy.FULL_SHARD."""
    inner = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    inner |= {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Attribute) or id(node) in inner:
            continue
        head, _, rest = dotted(node).partition(".")
        if head == "torch" or head in aliases or head[0].isupper():
            yield node, f"{aliases.get(head, head)}.{rest}"


def python_items(block):
    try:
        tree = ast.parse(block.text)
    except SyntaxError:  # a part of a dictionary
        yield from json_items(block)
        return
    own = {node.name for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
    aliases = dict(ALIASES)
    at = lambda node: block.line + node.lineno - 1
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            for name in node.names:
                aliases[name.asname or name.name] = name.name
                yield Item(block.page, at(node), "call", name.name)
        elif isinstance(node, ast.Import):
            for name in node.names:
                if name.asname:
                    aliases[name.asname] = name.name
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = dotted(node.func)
            if name in BUILT_IN or name in own or name.startswith("_."):
                continue
            head, _, rest = name.partition(".")
            name = aliases.get(head, head) + ("." + rest if rest else "")
            yield Item(block.page, at(node), "call", name)
            for keyword in node.keywords:
                if keyword.arg:
                    yield Item(block.page, at(keyword.value), "call", f"{name}({keyword.arg}=)")
        elif isinstance(node, ast.Subscript) and dotted(node.value) == "os.environ":
            yield Item(block.page, at(node), "variable", node.slice.value)
    for node, name in constants(tree, aliases):
        yield Item(block.page, at(node), "call", name)
    for assigned in ast.walk(tree):
        if isinstance(assigned, ast.Dict):
            yield from dict_items(block, assigned, tree)


def dict_items(block, node, tree):
    inner = {id(value) for each in ast.walk(tree) if isinstance(each, ast.Dict) for value in each.values}
    if id(node) in inner:
        return

    def walk(each, path):
        for key, value in zip(each.keys, each.values):
            if not isinstance(key, ast.Constant):
                continue
            yield Item(block.page, block.line + key.lineno - 1, "key", ".".join([*path, key.value]))
            if isinstance(value, ast.Dict):
                yield from walk(value, [*path, key.value])

    yield from walk(node, [])


def prose_items(page, lines):
    for number, word in prose(lines):
        if KEY.match(word + " ") and ":" in word:
            yield Item(page, number, "key", KEY.match(word + " ").group(1))
        elif " " in word or word in ("nvidia-smi",):
            yield from command_items(page, number, word)
        elif re.fullmatch(r"[a-z_0-9]+", word):
            yield Item(page, number, "key", word)


def items(source):
    """Every command, flag, variable, key and call of the guides."""
    readers = {"bash": shell_items, "": shell_items, "yaml": yaml_items, "json": json_items, "python": python_items}
    for page, lines in pages(source):
        for block in blocks(page, lines):
            if block.language == "" and "├" in block.text:
                continue  # a drawing of folders
            yield from readers[block.language](block)
        yield from prose_items(page, lines)


if __name__ == "__main__":
    for item in items(sys.argv[1]):
        print(f"{item.page}:{item.line}: {item.kind} {item.text}")
