"""BigBird, with the blocks that studies choose."""

from regard.attention import BigBird


def big_bird(
    n: int, *, block: int, side: int = 1, random: int, global_blocks: int = 1, seed: int
) -> BigBird:
    """Return BigBird for n tokens, with `side` blocks of the window to either side."""
    return BigBird(
        block_size=block,
        window=2 * side + 1,
        random=random,
        global_blocks=global_blocks,
        max_keys=n,
        seed=seed,
    )
