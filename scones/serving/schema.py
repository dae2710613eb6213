"""What requests and answers look like, for checking the former and documenting both."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

Text = Annotated[str, Field(min_length=1, examples=["Es tut mir leid."])]
Probability = Annotated[float, Field(gt=0, le=1)]
Language = Annotated[str, Field(min_length=2, max_length=35, examples=["de"])]
Name = Annotated[str, Field(min_length=1, max_length=200)]


class Ask(BaseModel):
    """What every request says."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)

    source: Language
    target: Annotated[str, Field(min_length=2, max_length=35, examples=["en"])]
    model: Name | None = None


class Searching(Ask):
    search: Literal["greedy", "beam"] = "greedy"
    beam_size: Annotated[int, Field(ge=1, le=16)] = 4
    length_penalty: Annotated[float, Field(ge=0, le=10)] | None = None
    share: Annotated[Probability, Field(description="Of the best, for alternatives.")] = 0.1


class Translate(Searching):
    text: str | Annotated[list[str], Field(max_length=1000, examples=[["Es tut mir leid."]])]
    tokens: bool = True
    split: Annotated[bool, Field(description="Whether texts hold several sentences.")] = True


class Continue(Searching):
    text: Text
    prefix: Annotated[
        str | list[str],
        Field(
            description="How the translation begins: text, whose last word may be unfinished "
            "unless a space follows; or the pieces of tokens, as they are.",
            examples=["I am "],
        ),
    ]


class Alternatives(Ask):
    text: Text
    threshold: Annotated[float, Field(ge=0.001, le=1)] | None = None
    n_best: Annotated[int, Field(ge=1, le=100)] | None = None
    prefix: str | list[str] | None = None
    max_states: Annotated[int, Field(ge=1)] | None = None
    max_seconds: Annotated[float, Field(gt=0)] | None = None


class Score(Ask):
    text: Text
    translation: Annotated[str, Field(examples=["I am sorry."])]
    share: Probability = 0.1


class Libre(BaseModel):
    api_key: str | None = None


class LibreTranslate(Libre):
    q: str | list[str]
    source: str = "auto"
    target: str = "en"
    format: Literal["text"] = "text"
    alternatives: Annotated[int, Field(ge=0, le=8)] = 0


class LibreDetect(Libre):
    q: str


# Answers, for the documentation alone.


class Error(BaseModel):
    error: str


class Alternative(BaseModel):
    piece: str
    text: str
    probability: float


class Token(Alternative):
    log_prob: float
    ambiguity: float
    doubt: float
    alternatives: list[Alternative]


class Variant(BaseModel):
    text: str
    probability: float | None


class Scored(Variant):
    log_prob: float | None
    confidence: float | None


class Sentence(Scored):
    source: str
    ambiguity: float | None
    doubt: float | None
    finished: bool
    tokens: list[Token]


class Translated(BaseModel):
    text: str
    sentences: list[Sentence]


class Answer(BaseModel):
    model: str
    source: str
    target: str


class TranslateAnswer(Answer):
    translations: list[Translated]


class SentenceAnswer(Answer):
    sentence: Sentence


class Found(Scored):
    variants: list[Variant]


class Certificate(BaseModel):
    complete: bool
    stopped_by: Literal["states", "time", "length", "memory"] | None
    upper_bound: Annotated[float, Field(description="Of the probability of what may be missing.")]
    states: int
    seconds: float


class AlternativesAnswer(Answer):
    alternatives: list[Found]
    certificate: Certificate
    lattice: dict[str, Any]
    compact: str


class ModelFacts(BaseModel):
    name: str
    source: str
    target: str
    layer: str
    limits: dict[str, float]


class ModelsAnswer(BaseModel):
    models: list[ModelFacts]
