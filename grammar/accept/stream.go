package accept

import (
	"fmt"

	"github.com/toolsidecar/sidecar/grammar/token"
	"github.com/toolsidecar/sidecar/models/jsontext"
)

// Offset is how many bytes were read that fit.
func (f *Follower) Offset() int { return f.offset }

// Next are the bytes that may come next; none after one that didn't fit. The
// error is a *LimitError.
func (f *Follower) Next() ([]byte, error) {
	if f.err != nil || f.at == 0 {
		return nil, nil
	}
	var out []byte
	from := f.a.row(f.at).mode
	for b := range 256 {
		s, err := f.a.Step(f.at, byte(b))
		if err != nil {
			return nil, err
		}
		if s != 0 && !(from == inKey && f.a.row(s).mode == atColon && f.again(byte(b))) {
			out = append(out, byte(b))
		}
	}
	return out, nil
}

// again tells whether b ends a key that stood in its object before.
func (f *trace) again(b byte) bool {
	key, err := jsontext.NewReader(append(f.key[:len(f.key):len(f.key)], b), 0).String()
	return err == nil && f.levels[len(f.levels)-1].keys[key]
}

// Token reads the bytes of a token, or the end of the text if it ends a turn.
// Special tokens are no text: the error is a *StopError, as that of Feed and End.
func (f *Follower) Token(v *token.Vocabulary, id int32) error {
	for _, end := range v.Ends() {
		if id == end {
			return f.End()
		}
	}
	text, special, ok := v.Tokenizer().Token(id)
	if f.err == nil && (special || !ok) {
		return f.stop(fmt.Sprintf("token %d is no text", id))
	}
	return f.Feed(text)
}
