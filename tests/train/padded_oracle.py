"""The loss of a run's first step as transformers computes it.

    padded_oracle.py RUN TEXTS LENGTH

RUN trained one step with a learning rate of zero on all of TEXTS (a JSON list), as padded byte tokens with an end mark. The batch is
built here from the texts, the weights come from the run's checkpoint. Prints loss and gradient norm; exits 77 without transformers."""

import json
import pathlib
import sys

try:
    import torch
    from safetensors.torch import load_file
    from transformers import LlamaConfig, LlamaForCausalLM
except ImportError:
    sys.exit(77)

END_MARK, PAD, IGNORED = 256, 0, -100

run, texts, length = pathlib.Path(sys.argv[1]), json.loads(pathlib.Path(sys.argv[2]).read_text()), int(sys.argv[3])
rows = [(list(text.encode()) + [END_MARK])[:length] for text in texts]
ids = torch.tensor([row + [PAD] * (length - len(row)) for row in rows])
mask = torch.tensor([[1] * len(row) + [0] * (length - len(row)) for row in rows])
labels = ids.masked_fill(mask == 0, IGNORED)

torch.set_num_threads(1)
model = LlamaForCausalLM(
    LlamaConfig(
        vocab_size=257,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
        rms_norm_eps=1e-5,
        rope_theta=10000.0,
        tie_word_embeddings=True,
        attn_implementation="eager",
    )
)
state = load_file(next((run / "checkpoints").glob("step-*/*.safetensors")))
wanted = {name for name in model.state_dict() if name != "lm_head.weight"}
missing = model.load_state_dict({name: state[name] for name in wanted}, strict=False)
assert not missing.unexpected_keys and set(missing.missing_keys) <= {"lm_head.weight"}, missing
loss = model(input_ids=ids, attention_mask=mask, labels=labels).loss
loss.backward()
norm = torch.sqrt(sum((parameter.grad.double() ** 2).sum() for parameter in model.parameters()))
print(loss.item(), norm.item())
