"""The post-processor of a tokenizer, which adds ids around each text in transformers."""

from tokenizers import processors

from regard.text.template import Affixes, Template


def post_processor(template: Template, outer: Affixes) -> processors.TemplateProcessing:
    """Return the post-processor that adds a template's ids around texts, as `Template.join`."""
    parts = {
        "begin": outer.prefix,
        "before_first": template.first.prefix,
        "behind_first": template.first.suffix,
        "before_second": template.second.prefix,
        "behind_second": template.second.suffix,
        "end": outer.suffix,
    }
    single = "begin:0 $A:0 end:0"
    pair = "begin:0 before_first:0 $A:0 behind_first:0 before_second:1 $B:1 behind_second:1 end:1"
    name = template.tokenizer.native.id_to_token
    return processors.TemplateProcessing(
        single=_pieces(single, parts),
        pair=_pieces(pair, parts),
        special_tokens=[
            {"id": part, "ids": list(ids), "tokens": [name(i) for i in ids]}
            for part, ids in parts.items()
            if ids
        ],
    )


def _pieces(template: str, parts: dict[str, tuple[int, ...]]) -> list[str]:
    """Return the pieces of a template without empty parts."""
    return [piece for piece in template.split() if parts.get(piece.partition(":")[0], (0,))]
