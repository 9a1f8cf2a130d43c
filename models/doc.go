// Package models holds the cards of open models and of GPUs: facts with their
// sources, as of 2026-11-30. What is computed from them is in models/cost.
//
// A quantity that no source states is absent from its card and nil in the
// struct; it is never filled in. A count or size of 0 means that the model has
// none of it.
//
// The cards are models.jsonl and gpus.jsonl, one a line, embedded in the program.
package models
