"""Sizes of a small language model, by the names that most families of transformers use."""

LLAMA = {"hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4}
LLAMA |= {"intermediate_size": 64, "vocab_size": 200, "max_position_embeddings": 64}
