// Package retrieval measures how well a catalog's tools are found: recall
// against judged queries, what of it is left within a budget of schema tokens,
// and how long the choice takes.
//
// The files are steps: set.go reads queries, score.go holds the measures,
// run.go asks the questions, dialogue.go plays whole dialogues, usage.go parts a
// log from what is asked.
package retrieval
