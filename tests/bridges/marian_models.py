"""Folders of small Marian models with random weights, laid out as those of OPUS-MT on the hub."""

import io
import json

CODE = ">>eng<<"


def write_subwords(folder, pairs, pieces):
    """Train a SentencePiece model for each language; tell how many pieces both have together."""
    from sentencepiece import SentencePieceProcessor, SentencePieceTrainer

    known = {}
    for name, texts in zip(("source", "target"), zip(*pairs, strict=True), strict=True):
        model = io.BytesIO()
        SentencePieceTrainer.train(
            sentence_iterator=iter(texts),
            model_writer=model,
            vocab_size=pieces,
            hard_vocab_limit=False,
            minloglevel=2,
        )
        (folder / f"{name}.spm").write_bytes(model.getvalue())
        spm = SentencePieceProcessor(model_proto=model.getvalue())
        known |= dict.fromkeys(spm.id_to_piece(one) for one in range(3, spm.get_piece_size()))
    for strange in list(known)[20:120:20]:  # SentencePiece makes it, and the model has no id for it
        del known[strange]
    names = ["</s>", "<unk>", *sorted(known), CODE, "<pad>"]
    ids = {name: number for number, name in enumerate(names)}
    (folder / "vocab.json").write_text(json.dumps(ids))
    (folder / "tokenizer_config.json").write_text('{"source_lang": "de", "target_lang": "en"}')
    return len(names)


def new_model(vocabulary, **changes):
    """Make a model with lively logits; on its padding's, which search must not take, they peak."""
    import torch
    from transformers import MarianConfig, MarianMTModel

    known = {"vocab_size": vocabulary, "max_position_embeddings": 20, "d_model": 32}
    for side in ("encoder", "decoder"):
        known |= {f"{side}_layers": 2, f"{side}_attention_heads": 2, f"{side}_ffn_dim": 64}
    known |= {"activation_function": "swish", "scale_embedding": True}
    known |= {"pad_token_id": vocabulary - 1, "decoder_start_token_id": vocabulary - 1}
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(5)
        model = MarianMTModel(MarianConfig(**known | changes)).eval()
        for name, one in model.named_parameters():
            if one.ndim > 1 and "positions" not in name:
                one.normal_(std=0.2 if len(one) == vocabulary else 0.4)
        model.model.shared.weight[0] *= 8
        model.final_logits_bias.normal_()
        model.final_logits_bias[0, 0], model.final_logits_bias[0, -1] = 1.0, 9.0
    # As in the generation_config.json of OPUS-MT: banned is banned, and the rest shares it all.
    told = model.generation_config
    told.bad_words_ids, told.renormalize_logits = [[vocabulary - 1]], True
    told.forced_eos_token_id = None
    return model
