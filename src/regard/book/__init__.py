"""The book: the parts of five courses with their answers, as one offline page and as slides."""
