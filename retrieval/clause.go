package retrieval

import "strings"

const (
	clauseWords = 3  // a clause has at least so many
	clauseMost  = 10 // clauses of a text that are looked at
)

// clauses cuts a text that asks for several things: at the end of a sentence, at
// a line break, and at words like "and" and "then". What is shorter than three
// words is no clause. A text of one clause yields none.
func clauses(text string) []string {
	var out []string
	start := 0
	cut := func(end, next int) {
		if s := strings.TrimSpace(text[start:end]); len(strings.Fields(s)) >= clauseWords && len(out) < clauseMost {
			out = append(out, s)
		}
		start = next
	}
	for i := 0; i < len(text) && len(out) < clauseMost; {
		switch c := text[i]; {
		case c == '\n':
			cut(i, i+1)
			i++
		case c == ' ' || c == '\t':
			if i > 0 && strings.IndexByte(".!?;", text[i-1]) >= 0 {
				cut(i, i+1)
				i++
				continue
			}
			if n := conjunction(text[i+1:]); n > 0 {
				end := i
				if end > start && text[end-1] == ',' {
					end--
				}
				cut(end, i+1+n)
				i += 1 + n // the space behind it may begin another
				continue
			}
			i++
		default:
			i++
		}
	}
	cut(len(text), len(text))
	if len(out) < 2 {
		return nil
	}
	return out
}

// conjunctions join two wishes; the longer ones first.
var conjunctions = [...]string{"and then", "and also", "after that", "then", "and", "also", "finally", "next"}

// conjunction returns the length of the conjunction that text begins with, the
// white space behind it left out, or 0.
func conjunction(text string) int {
	for _, c := range conjunctions {
		if len(text) > len(c) && text[:len(c)] == c && (text[len(c)] == ' ' || text[len(c)] == '\t') {
			return len(c)
		}
	}
	return 0
}
