"""The shapes of the models that `trireme bench train` knows: those of its `bench models` (tests/tools/gpu_train_test.py compares)."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Shape:
    family: str  # "llama", "gpt2"
    width: int
    inner: int
    layers: int
    heads: int
    key_value_heads: int
    head: int
    vocabulary: int
    positions: int = 0  # that are learned
    theta: float = 0.0
    eps: float = 1e-5
    tied: bool = True
    qkv_bias: bool = False

    @property
    def rows(self):
        """Of the vocabulary's matrix: a multiple of 128 is faster for everybody."""
        return -(-self.vocabulary // 128) * 128

    @property
    def matmul_weights(self):
        """In a matrix product of every token: those of the blocks and of the head, not the embedding's."""
        queries = self.heads * self.head
        qkv = queries + 2 * self.key_value_heads * self.head
        up = self.inner * (2 if self.family == "llama" else 1)
        return self.layers * self.width * (qkv + queries + up + self.inner) + self.rows * self.width

    def flops_per_token(self, sequence):
        """6 x matmul weights + 6 L q T: forward and backward, each pair of a causal attention's positions once."""
        return 6 * self.matmul_weights + 6 * self.layers * self.heads * self.head * sequence


def _llama3(width, inner, layers, heads, tied):
    return Shape("llama", width, inner, layers, heads, 8, width // heads, 128256, theta=500000.0, tied=tied)


def _qwen25(width, inner, layers, heads, key_value_heads, tied):
    vocabulary = 151936 if tied else 152064
    return Shape("llama", width, inner, layers, heads, key_value_heads, width // heads, vocabulary, theta=1e6, eps=1e-6, tied=tied,
                 qkv_bias=True)


def _gpt2(width, layers, heads):
    return Shape("gpt2", width, 4 * width, layers, heads, heads, width // heads, 50257, positions=1024)


SHAPES = {
    "llama-1b": _llama3(2048, 8192, 16, 32, True),
    "llama-3b": _llama3(3072, 8192, 28, 24, True),
    "llama-8b": _llama3(4096, 14336, 32, 32, False),
    "gpt2-124m": _gpt2(768, 12, 12),
    "gpt2-xl": _gpt2(1600, 48, 25),
    "qwen2.5-1.5b": _qwen25(1536, 8960, 28, 12, 2, True),
    "qwen2.5-3b": _qwen25(2048, 11008, 36, 16, 2, True),
    "qwen2.5-7b": _qwen25(3584, 18944, 28, 28, 4, False),
    "tiny": Shape("llama", 64, 96, 2, 4, 2, 16, 500, theta=10000.0),
    "tiny-gpt2": _gpt2(64, 2, 4),
}
