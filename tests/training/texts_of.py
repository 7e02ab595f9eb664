"""The batches of a stream of texts."""

from regard.text.batches import TextBatch
from regard.training.sources import Stream


def texts_of(stream: Stream, step: int) -> TextBatch:
    """The batch of a step, which is one of texts."""
    batch = stream.batch(step)
    assert isinstance(batch, TextBatch)
    return batch
