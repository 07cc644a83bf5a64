#!/usr/bin/env python3
"""Holds the source tree to its layers: who may include whom, that no policy leaks into the
interpreters of a plan, and that files and functions stay short.

    layering_test.py              checks the tree this file is in
    layering_test.py --self-test  checks that each kind of violation would be caught

Limits that a file or function may break stand in layering_allow.txt, each with a reason.
"""

import os
import re
import sys

SOURCE_SUFFIXES = (".h", ".cc", ".cu", ".cuh")
MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 80

# Layer -> layers whose headers it may include. A path belongs to the longest layer it starts with.
ARROWS = {
    "proto/base": {"proto/base"},
    "proto": {"proto", "proto/base"},
    "planner": {"planner", "proto", "proto/base"},
    "sim/memory": {"sim/memory", "proto/base"},
    "sim": {"sim", "sim/memory", "proto", "proto/base"},
    "exec": {"exec", "sim/memory", "proto", "proto/base"},
    "tools": {"tools", "planner", "sim", "sim/memory", "exec", "proto", "proto/base"},
    "tests": {"tests", "tools", "planner", "sim", "sim/memory", "exec", "proto", "proto/base"},
}
FOLDERS = sorted({layer.split("/")[0] for layer in ARROWS})

# Words of policy: the planner decides, the interpreters in these layers only follow.
POLICY = [["fsdp"], ["ddp"], ["wrap"], ["reshard", "after"], ["limiter"], ["prefetch"]]
POLICY_FREE_LAYERS = {"sim", "sim/memory", "exec"}
# Names of the plan's and report's schema, which interpreters copy or print without deciding by them.
EXEMPT = {
    "PREFETCH_BACKWARD_IMPLICIT",
    "AllGather_Reason_PREFETCH_BACKWARD_IMPLICIT",
    "wrap_policy",
    "set_wrap_policy",
    "reshard_after_forward",
    "set_reshard_after_forward",
}

TOKEN = re.compile(
    r"""(?P<comment>//(?:[^\\\n]|\\.)*|/\*.*?\*/)
      | (?P<directive>^[ \t]*\#(?:[^\\\n/]|\\.|/(?![/*]))*)
      | (?P<raw>(?:u8|[uUL])?R"(?P<mark>[^()\s\\]{0,16})\(.*?\)(?P=mark)")
      | (?P<string>"(?:[^"\\\n]|\\.)*")
      | (?P<char>'(?:[^'\\\n]|\\.)+')
      | (?P<number>\.?\d(?:[eEpP][+-]|'?[\w.])*)
      | (?P<word>[A-Za-z_]\w*)
      | (?P<space>\s+)
      | (?P<punct>.)""",
    re.S | re.M | re.X,
)
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
PARTS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")


class Token:
    def __init__(self, kind, text, line):
        self.kind, self.text, self.line = kind, text, line


def tokens_of(text):
    """The tokens that are neither comment nor blank."""
    tokens, line = [], 1
    for match in TOKEN.finditer(text):
        kind = match.lastgroup if match.lastgroup != "mark" else "raw"
        if kind not in ("comment", "space"):
            tokens.append(Token(kind, match.group(), line))
        line += match.group().count("\n")
    return tokens


def layer_of(path):
    fitting = [layer for layer in ARROWS if path.startswith(layer + "/")]
    return max(fitting, key=len) if fitting else None


def include_problems(path, tokens):
    layer = layer_of(path)
    for token in tokens:
        match = token.kind == "directive" and INCLUDE.match(token.text)
        if not match:
            continue
        quote, target = match.groups()
        to = layer_of(target)
        if to is None:
            if quote == '"':
                yield f'{path}:{token.line}: include "{target}": quotes are for our own files, by full path'
        elif to not in ARROWS[layer]:
            yield f"{path}:{token.line}: {layer} must not include {to} ({target})"


def policy_words(text):
    """The policy words in a piece of code or a string, as written."""
    for word in re.findall(r"\w+", text):
        if word in EXEMPT:
            continue
        parts = [part.lower() for part in PARTS.findall(word)]
        for policy in POLICY:
            if any(parts[i : i + len(policy)] == policy for i in range(len(parts))):
                yield word
                break


def policy_problems(path, tokens):
    if layer_of(path) not in POLICY_FREE_LAYERS:
        return
    for token in tokens:
        if token.kind == "directive" and INCLUDE.match(token.text):
            continue
        for word in policy_words(token.text):
            yield f'{path}:{token.line}: "{word}" is policy; the plan must decide it'


def without_templates(header):
    """The header of a declaration after its `template <...>` parts."""
    i = 0
    while i + 1 < len(header) and header[i].text == "template" and header[i + 1].text == "<":
        depth, i = 1, i + 2
        while i < len(header) and depth:
            depth += {"<": 1, ">": -1}.get(header[i].text, 0)
            i += 1
    return header[i:]


def meaning_of_brace(header):
    """What a `{` after these tokens opens: "scope", "value", or the name of a function."""
    header = without_templates(header)
    texts = [token.text for token in header]
    if "namespace" in texts or (texts[:1] == ["extern"] and len(header) == 2):
        return "scope"
    call = texts.index("(") if "(" in texts else None
    before = texts[:call]
    if "operator" not in before and "=" in before:
        return "value"
    if call is None or (call and texts[0] in ("class", "struct", "union", "enum") and ")" not in texts):
        types = {"class", "struct", "union", "enum"} & set(texts)
        return "scope" if types else "value"
    closing, depth = call, 0
    for i in range(call, len(texts)):
        depth += {"(": 1, ")": -1}.get(texts[i], 0)
        if depth == 0:
            closing = i
            break
    # In a list of member initialisers, a name before the brace makes it a member's value.
    after = texts[closing + 1 :]
    if ":" in after and after[after.index(":") + 1 :] and after[-1] != ")" and after[-1] != "}":
        return "value"
    if before[-1:] and re.fullmatch(r"[A-Z][A-Z0-9_]+", before[-1]):  # TEST(Suite, Name)
        return f"{before[-1]}({''.join(texts[call + 1 : closing])})"
    if "operator" in before:
        return "".join(before[before.index("operator") :])
    name = []
    for text in reversed(before):
        if name and not (text in ("::", ":", "~") or name[-1] in (":", "~")):
            break
        name.append(text)
    return "".join(reversed(name)) or "?"


def functions_of(tokens):
    """(name, first line, lines) of each function with a body outside other functions."""
    found, header, i = [], [], 0
    code = [t for t in tokens if t.kind != "directive"]
    while i < len(code):
        text = code[i].text
        if text == "{":
            meaning = meaning_of_brace(header)
            if meaning == "scope":
                header, i = [], i + 1
                continue
            depth, end = 1, i + 1
            while end < len(code) and depth:
                depth += {"{": 1, "}": -1}.get(code[end].text, 0)
                end += 1
            if meaning == "value":  # the declaration goes on behind it
                header.append(code[end - 1])
            else:
                first, last = header[0].line, code[end - 1].line
                found.append((meaning, first, last - first + 1))
                header = []
            i = end
            continue
        if text in (";", "}") or (text == ":" and [t.text for t in header] in ACCESS):
            header = []
        else:
            header.append(code[i])
        i += 1
    return found


ACCESS = [["public"], ["private"], ["protected"]]


def size_problems(path, text, tokens, allowed, used):
    """Files and functions over the limits. Adds the keys of `allowed` that were needed to `used`."""
    lines = text.count("\n")
    if lines > MAX_FILE_LINES:
        key = (path, "file")
        if key in allowed:
            used.add(key)
        else:
            yield f"{path}: {lines} lines, limit {MAX_FILE_LINES}"
    for name, line, length in functions_of(tokens):
        if length > MAX_FUNCTION_LINES:
            key = (f"{path}:{name}", "function")
            if key in allowed:
                used.add(key)
            else:
                yield f"{path}:{line}: {name} has {length} lines, limit {MAX_FUNCTION_LINES}"


def read_allowed(text):
    """The rows of layering_allow.txt: (allowed keys, problems)."""
    allowed, problems = {}, []
    for number, row in enumerate(text.splitlines(), 1):
        if not row.strip() or row.lstrip().startswith("#"):
            continue
        columns = row.split(None, 2)
        if len(columns) < 3 or columns[1] not in ("file", "function"):
            problems.append(f"layering_allow.txt:{number}: expected PLACE file|function REASON")
        else:
            allowed[(columns[0], columns[1])] = columns[2]
    return allowed, problems


def check(files, allow_text):
    """All problems of a tree given as {path: text}."""
    allowed, problems = read_allowed(allow_text)
    used = set()
    for path, text in sorted(files.items()):
        tokens = tokens_of(text)
        problems += include_problems(path, tokens)
        problems += policy_problems(path, tokens)
        problems += size_problems(path, text, tokens, allowed, used)
    for place, kind in sorted(set(allowed) - used):
        problems.append(f"layering_allow.txt: {place} ({kind}) is no longer over its limit: drop the row")
    return problems


def read_tree(root):
    files = {}
    for top in FOLDERS:
        for folder, _, names in os.walk(os.path.join(root, top)):
            for name in names:
                if name.endswith(SOURCE_SUFFIXES):
                    path = os.path.join(folder, name)
                    with open(path, encoding="utf-8") as file:
                        files[os.path.relpath(path, root).replace(os.sep, "/")] = file.read()
    return files


def function_text(signature, lines):
    """A function of so many lines, braces included."""
    return signature + " {\n" + "  Step();\n" * (lines - 2) + "}\n"


SELF_TESTS = [
    # (what, {path: text}, allow rows, parts that the single expected problem holds; None = clean)
    ("downward includes", {"planner/a.h": '#include "planner/b.h"\n#include "proto/plan.pb.h"\n'
                           '#include <vector>\n#include "proto/base/units.h"\n'}, "", None),
    ("planner includes sim", {"planner/a.cc": '#include "sim/a.h"\n'}, "", "planner must not include sim"),
    ("sim includes planner", {"sim/a.cc": '\n#include "planner/a.h"\n'}, "", "sim/a.cc:2: sim must not"),
    ("sim includes exec", {"sim/a.cc": '#include "exec/a.h"\n'}, "", "sim must not include exec"),
    ("exec includes sim", {"exec/a.cc": '#include "sim/a.h"\n'}, "", "exec must not include sim"),
    ("exec uses the allocator", {"exec/a.cc": '#include "sim/memory/a.h"\n'}, "", None),
    ("allocator includes proto", {"sim/memory/a.h": '#include "proto/plan.pb.h"\n'}, "",
     "sim/memory must not include proto"),
    ("base includes proto", {"proto/base/a.h": '#include "proto/io.h"\n'}, "",
     "proto/base must not include proto"),
    ("proto includes sim", {"proto/a.h": "#include <sim/a.h>\n"}, "", "proto must not include sim"),
    ("tools include tests", {"tools/a.cc": '#include "tests/a.h"\n'}, "", "tools must not include tests"),
    ("tests include all", {"tests/a.cc": '#include "tools/a.h"\n#include "sim/a.h"\n'}, "", None),
    ("include without folder", {"sim/a.cc": '#include "a.h"\n'}, "", "by full path"),
    ("include in a comment", {"sim/a.cc": '// #include "planner/a.h"\n/*\n#include "planner/a.h"\n*/\n'},
     "", None),
    ("whole word", {"sim/a.cc": "int wrap = 0;\n"}, "", 'sim/a.cc:1: "wrap" is policy'),
    ("part between underscores", {"exec/a.h": "\nbool use_prefetch_now;\n"}, "", "use_prefetch_now"),
    ("CamelCase part", {"sim/a.h": "class RateLimiter;\n"}, "", "RateLimiter"),
    ("part before digits", {"sim/memory/a.h": "void RunFSDP2Step();\n"}, "", "RunFSDP2Step"),
    ("two parts", {"exec/a.h": "bool ReshardAfterForward();\n"}, "", "ReshardAfterForward"),
    ("other two parts", {"exec/a.h": "bool after_reshard();\n"}, "", None),
    ("string", {"sim/a.cc": 'auto s = "the ddp way";\n'}, "", "ddp"),
    ("raw string", {"sim/a.cc": 'auto s = R"x(a " fsdp)x";\n'}, "", "fsdp"),
    ("macro", {"sim/a.cc": "#define A \\\n  wrap\n"}, "", "wrap"),
    ("word behind a digit separator", {"sim/a.cc": "int a = 1'000; int ddp = '\"';\n"}, "", "ddp"),
    ("comment and include", {"sim/a.cc": '// wrap\n/* fsdp */\n#include "proto/wrap.h"  // ddp\n'}, "", None),
    ("longer words", {"sim/a.cc": "int wrapped, unwrap, prefetched, address, reshard;\n"}, "", None),
    ("schema names", {"sim/a.cc": "x = pb::AllGather::PREFETCH_BACKWARD_IMPLICIT;\n"}, "", None),
    ("policy in the planner", {"planner/a.h": "void Wrap();\n"}, "", None),
    ("long file", {"tools/a.cc": "int a;\n" * 401}, "", "401 lines"),
    ("file at the limit", {"tools/a.cc": "int a;\n" * 400}, "", None),
    ("allowed long file", {"tools/a.cc": "int a;\n" * 401}, "tools/a.cc file one table\n", None),
    ("unused row", {"tools/a.cc": "int a;\n"}, "tools/a.cc file one table\n", "drop the row"),
    ("row without a reason", {}, "tools/a.cc file\n", "expected PLACE"),
    ("function at the limit", {"tools/a.cc": function_text("int F()", 80)}, "", None),
    ("long function", {"tools/a.cc": "namespace a::b {\n" + function_text("int F(int a)", 81) + "}\n"},
     "", "tools/a.cc:2: F has 81 lines"),
    ("allowed long function", {"tools/a.cc": function_text("int F()", 81)},
     "tools/a.cc:F function it is a table\n", None),
    ("long method", {"tools/a.h": "class A final : public B {\n public:\n"
                     + function_text("  template <typename T = int>\n  int F() const", 82) + "};\n"},
     "", "F has 83 lines"),
    ("long qualified method", {"tools/a.cc": function_text("std::map<int, int> A::F(int b = 3)", 81)},
     "", "A::F has"),
    ("long constructor", {"tools/a.cc": function_text("A::A(int b) : b_{b}, c_(f(b)), d_{}", 81)},
     "", "A::A has"),
    ("long test", {"tests/a.cc": function_text("TEST(Thing, Works)", 81)}, "", "TEST(Thing,Works) has"),
    ("long operator", {"tools/a.cc": function_text("bool operator==(A a, A b)", 81)}, "", "operator== has"),
    ("long table", {"tools/a.cc": "constexpr Row kRows[] = {\n" + "  {1, F()},\n" * 100 + "};\n"}, "", None),
    ("many short functions", {"tools/a.cc": function_text("int F()", 20) * 6}, "", None),
]


def self_test():
    failures = 0
    for what, files, allow, expected in SELF_TESTS:
        problems = check(files, allow)
        good = not problems if expected is None else len(problems) == 1 and expected in problems[0]
        if not good:
            failures += 1
            print(f"{what}: expected {expected or 'no problem'}, found {problems}")
    print(f"{len(SELF_TESTS) - failures} of {len(SELF_TESTS)} self-tests passed")
    return failures


def main():
    if sys.argv[1:] == ["--self-test"]:
        return 1 if self_test() else 0
    here = os.path.dirname(os.path.abspath(__file__))
    with open(os.path.join(here, "layering_allow.txt"), encoding="utf-8") as file:
        allow_text = file.read()
    files = read_tree(os.path.dirname(here))
    problems = check(files, allow_text)
    for problem in problems:
        print(problem)
    print(f"{len(files)} files, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
