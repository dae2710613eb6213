"""Tiny models of every class that can be converted, with random weights and lively logits."""

import torch

VOCABULARY = 40
CLASSES = {
    "marian": ("MarianMTModel", "MarianConfig"),
    "bart": ("BartForConditionalGeneration", "BartConfig"),
    "mbart": ("MBartForConditionalGeneration", "MBartConfig"),
    "pegasus": ("PegasusForConditionalGeneration", "PegasusConfig"),
    "m2m100": ("M2M100ForConditionalGeneration", "M2M100Config"),
    "t5": ("T5ForConditionalGeneration", "T5Config"),
    "mt5": ("MT5ForConditionalGeneration", "MT5Config"),
}
WITH_BUFFER = ["marian", "bart", "mbart", "pegasus"]

_BART_SIZES = {
    "d_model": 16,
    "encoder_layers": 1,
    "decoder_layers": 2,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 32,
    "decoder_ffn_dim": 32,
    "max_position_embeddings": 64,
    "forced_eos_token_id": None,
}
_T5_SIZES = {"d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 2, "num_heads": 2}
_IDS = {
    # As in the real models: Marian ends with 0 and starts from the last id, its padding.
    "marian": {
        "pad_token_id": 39,
        "eos_token_id": 0,
        "decoder_start_token_id": 39,
        "decoder_vocab_size": VOCABULARY,
    },
    "mbart": {"decoder_start_token_id": 2},
    "t5": {"decoder_start_token_id": 0},
    "mt5": {"decoder_start_token_id": 0},
}


def tiny(name, seed=0):
    """Make a model whose choices are neither all alike nor all certain, and that ends in time."""
    import transformers

    class_name, config_name = CLASSES[name]
    sizes = _T5_SIZES if name.endswith("t5") else _BART_SIZES
    config = getattr(transformers, config_name)(
        vocab_size=VOCABULARY, **sizes, **_IDS.get(name, {})
    )
    torch.manual_seed(seed)
    model = getattr(transformers, class_name)(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1 and parameter.requires_grad:
                # Embeddings, which are also the output matrix, stay small beside the rest.
                parameter.normal_(std=0.3 if parameter.size(0) in (VOCABULARY, 64) else 1.0)
    return model


def batch(lengths, model, seed=0):
    """Make sources of these lengths, padded."""
    generator = torch.Generator().manual_seed(seed)
    pad = model.config.pad_token_id
    ids = torch.randint(4, VOCABULARY - 2, (len(lengths), max(lengths)), generator=generator)
    mask = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    return {"input_ids": ids.masked_fill(~mask, pad), "attention_mask": mask.long()}


def labelled(lengths, model, seed=0):
    """Make sources and labels of these lengths."""
    sources = batch(lengths, model, seed)
    labels = batch(lengths, model, seed + 1)
    ignored = labels["attention_mask"] == 0
    return {**sources, "labels": labels["input_ids"].masked_fill(ignored, -100)}
