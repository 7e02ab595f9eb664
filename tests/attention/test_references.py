"""References stand alone: each is written from the formula, and calls nothing of the mechanism."""

import ast
import builtins
from math import sqrt
from pathlib import Path

import torch

import regard.attention
from regard.attention import reference

PACKAGE = Path(regard.attention.__file__).parent
REFERENCES = {
    f"{file.stem}.{class_.name}": (file, method)
    for file in sorted(PACKAGE.glob("*.py"))
    for class_ in ast.walk(ast.parse(file.read_text("utf-8")))
    if isinstance(class_, ast.ClassDef)
    for method in class_.body
    if isinstance(method, ast.FunctionDef) and method.name == "reference"
    if not method.decorator_list  # the abstract one
}
LIBRARIES = {"torch", "math", "itertools", "reference", *vars(builtins)}
"""What a reference may use: libraries, and what all references share."""


def test_that_of_softmax_is_the_softmax_of_scaled_products_and_biases() -> None:
    generator = torch.Generator().manual_seed(0)
    query, key, bias = (
        torch.randn(*shape, generator=generator, dtype=torch.float64)
        for shape in ((2, 4, 3, 5), (2, 2, 6, 5), (4, 3, 6))
    )
    allowed = torch.rand(2, 4, 3, 6, generator=generator) < 0.7
    allowed[..., 0] = True
    scores = query @ key.repeat_interleave(2, dim=1).mT / sqrt(5) + bias
    expected = scores.masked_fill(~allowed, float("-inf")).softmax(-1)
    weights = reference.softmax(query, key, allowed, bias)
    # Two ways to round scores below 10.
    assert torch.allclose(weights, expected, rtol=0, atol=32 * torch.finfo(torch.float64).eps)


def test_a_reference_calls_nothing_else_of_its_module() -> None:
    for name in REFERENCES:
        file, method = REFERENCES[name]
        names = [node for node in ast.walk(method) if isinstance(node, ast.Name)]
        own = {node.id for node in names if isinstance(node.ctx, ast.Store)}
        own |= {node.arg for node in ast.walk(method) if isinstance(node, ast.arg)}
        annotations = {"Tensor", "Float", "Mask", "Queries", "Keys", "Weights", "DenseBias"}
        used = {node.id for node in names if isinstance(node.ctx, ast.Load)}
        assert used <= own | LIBRARIES | annotations, f"{file.name}: {used}"
        called = [node.func for node in ast.walk(method) if isinstance(node, ast.Call)]
        of_self = {ast.unparse(call) for call in called if ast.unparse(call).startswith("self")}
        data = {"self.directions.double", "self.sinks.double", "self.features.reference"}
        data |= {"self.lambda_query.double", "self.lambda_key.double", "self.learned.reference"}
        data |= {"self.weight.double", "self.bias.double", "self.table.double"}
        assert of_self <= data, f"{file.name}: {of_self}"
