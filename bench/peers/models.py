"""The models of shapes.py as a PyTorch user writes them, from PyTorch's fastest parts."""

import torch
import torch.nn as nn
import torch.nn.functional as F


def _norm(shape):
    return nn.LayerNorm(shape.width) if shape.family == "gpt2" else nn.RMSNorm(shape.width, eps=shape.eps)


def _rotated(x, cos, sin):
    a, b = x.float().chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1).type_as(x)


class Block(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.shape = shape
        is_gpt2 = shape.family == "gpt2"
        queries, keys = shape.heads * shape.head, shape.key_value_heads * shape.head
        self.norm1, self.norm2 = _norm(shape), _norm(shape)
        self.qkv = nn.Linear(shape.width, queries + 2 * keys, bias=is_gpt2 or shape.qkv_bias)
        self.out = nn.Linear(queries, shape.width, bias=is_gpt2)
        self.up = nn.Linear(shape.width, shape.inner * (1 if is_gpt2 else 2), bias=is_gpt2)
        self.down = nn.Linear(shape.inner, shape.width, bias=is_gpt2)

    def forward(self, x, cos, sin):
        s = self.shape
        B, T, _ = x.shape
        heads = self.qkv(self.norm1(x)).view(B, T, s.heads + 2 * s.key_value_heads, s.head)
        q, k, v = heads.split((s.heads, s.key_value_heads, s.key_value_heads), 2)
        if s.family == "llama":
            q, k = _rotated(q, cos, sin), _rotated(k, cos, sin)
        q, k, v = (part.transpose(1, 2) for part in (q, k, v))
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=s.heads != s.key_value_heads)
        x = x + self.out(attended.transpose(1, 2).reshape(B, T, s.heads * s.head))
        wide = self.up(self.norm2(x))
        if s.family == "gpt2":
            return x + self.down(F.gelu(wide, approximate="tanh"))
        gate, up = wide.chunk(2, -1)
        return x + self.down(F.silu(gate) * up)


class Model(nn.Module):
    def __init__(self, shape, sequence):
        super().__init__()
        self.embed = nn.Embedding(shape.rows, shape.width)
        self.positions = nn.Embedding(shape.positions, shape.width) if shape.positions else None
        self.blocks = nn.ModuleList(Block(shape) for _ in range(shape.layers))
        self.norm = _norm(shape)
        self.head = nn.Linear(shape.width, shape.rows, bias=False)
        if shape.tied:
            self.head.weight = self.embed.weight
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=0.02)
        frequencies = (shape.theta or 1.0) ** (-torch.arange(0, shape.head, 2).float() / shape.head)
        angles = torch.outer(torch.arange(sequence).float(), frequencies)[None, :, None, :]
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)

    def forward(self, ids):
        x = self.embed(ids)
        if self.positions is not None:
            x = x + self.positions.weight[: ids.shape[1]].to(x.dtype)
        for block in self.blocks:
            x = block(x, self.cos, self.sin)
        return self.head(self.norm(x))


def loss_of(logits, labels):
    return F.cross_entropy(logits.float().flatten(0, 1), labels.flatten())
