package tokenizer

import (
	"fmt"
	"slices"
)

// A Tokenizer is a vocabulary with its rules. It doesn't change and may be used
// by several goroutines at once.
type Tokenizer struct {
	name    string
	pattern *pattern
	class   *classTable
	nfc     bool

	vocab  vocabulary // ordinary tokens
	pieces *pieceTable
	merger merger

	added []Added // by rising id
	byID  map[int32]int
	ids   map[string]int32
	raw   *finder // added tokens found in the text as it comes
	after *finder // those found in it after normalising
	size  int
}

// Name is the name of the vocabulary: that of the embedded one, of the folder or
// file it was loaded from, or RanksConfig.Name; empty after Parse.
func (t *Tokenizer) Name() string { return t.name }

// Size is 1 + the largest id. Engines often pad their logits beyond it.
func (t *Tokenizer) Size() int { return t.size }

// Added lists the special and added tokens by rising id.
func (t *Tokenizer) Added() []Added { return slices.Clone(t.added) }

// ID is the id of the special or added token with this spelling.
func (t *Tokenizer) ID(spelling string) (int32, bool) {
	id, ok := t.ids[spelling]
	return id, ok
}

// Ordinary is the id of the ordinary token with these bytes, which need be no text.
func (t *Tokenizer) Ordinary(b string) (int32, bool) { return t.pieces.find(b) }

// Token is what id decodes to, whether it is special, and whether there is such
// an id at all. An added token that isn't special is not told from an ordinary
// one here; see IsAdded. The caller must not change b.
func (t *Tokenizer) Token(id int32) (b []byte, special, ok bool) {
	if id >= 0 && int(id) < t.vocab.size() {
		if b := t.vocab.token(id); len(b) > 0 {
			return b, false, true
		}
	}
	if i, ok := t.byID[id]; ok {
		return []byte(t.added[i].Content), t.added[i].Special, true
	}
	return nil, false, false
}

// IsAdded reports whether id is special or added, that is, stands for its
// spelling as a whole and never results from EncodeOrdinary.
func (t *Tokenizer) IsAdded(id int32) bool {
	_, ok := t.byID[id]
	return ok
}

// Encode appends the ids of text to dst. Special and added tokens are recognised
// where text spells them, as an engine does with a rendered prompt; none is put
// in that text doesn't spell.
func (t *Tokenizer) Encode(dst []int32, text string) []int32 {
	out := output{ids: dst}
	t.encode(&out, text)
	return out.ids
}

// EncodeOrdinary appends the ids of text to dst, in which spellings of special
// and added tokens are plain text.
func (t *Tokenizer) EncodeOrdinary(dst []int32, text string) []int32 {
	out := output{ids: dst}
	t.split(&out, t.normalize(text))
	return out.ids
}

// EncodeMasked appends the ids of text as Encode does, except that plain may put
// spellings of added tokens back into each stretch between the added tokens of
// text: there they are plain text. With a plain that changes nothing it is Encode,
// for vocabularies whose added tokens are all found before normalising.
func (t *Tokenizer) EncodeMasked(dst []int32, text string, plain func(stretch string) string) []int32 {
	out := output{ids: dst}
	from, taken := 0, 0
	for {
		m, ok := t.raw.next(text, from, taken)
		if !ok {
			m.start = len(text)
		}
		if taken < m.start {
			t.split(&out, t.normalize(plain(text[taken:m.start])))
		}
		if !ok {
			return out.ids
		}
		out.ids = append(out.ids, m.id)
		from, taken = m.resume, m.end
	}
}

// NextAdded is the first place at or behind text[from] where text spells an added
// token, without the white space that the token takes along.
func (t *Tokenizer) NextAdded(text string, from int) (start, end int, id int32, ok bool) {
	m, ok := t.raw.next(text, from, from)
	if !ok {
		return 0, 0, 0, false
	}
	spelling := t.added[t.byID[m.id]].Content
	return m.resume - len(spelling), m.resume, m.id, true
}

// Count is len(t.Encode(nil, text)).
func (t *Tokenizer) Count(text string) int {
	var buf [64]int32
	out := output{ids: buf[:0], counting: true}
	t.encode(&out, text)
	return out.counted + len(out.ids)
}

// UnknownIDError is an id that the vocabulary doesn't have.
type UnknownIDError struct {
	ID    int32
	Index int // in the ids given to Decode
	Size  int // of the vocabulary
}

func (e *UnknownIDError) Error() string {
	return fmt.Sprintf("token id %d at index %d is not in the vocabulary (size %d)", e.ID, e.Index, e.Size)
}

// Decode appends the bytes of ids to dst, special and added tokens by their
// spelling. The bytes needn't be valid UTF-8: a character may be cut between two
// tokens. At the first id outside the vocabulary it stops with an
// *UnknownIDError and returns what precedes it.
func (t *Tokenizer) Decode(dst []byte, ids []int32) ([]byte, error) {
	for i, id := range ids {
		if id >= 0 && int(id) < t.vocab.size() {
			if b := t.vocab.token(id); len(b) > 0 {
				dst = append(dst, b...)
				continue
			}
		}
		a, ok := t.byID[id]
		if !ok {
			return dst, &UnknownIDError{ID: id, Index: i, Size: t.size}
		}
		dst = append(dst, t.added[a].Content...)
	}
	return dst, nil
}

// An output collects ids, or only counts them.
type output struct {
	ids      []int32
	counting bool
	counted  int // ids dropped from ids
}

func (t *Tokenizer) normalize(text string) string {
	if t.nfc {
		return nfc(text)
	}
	return text
}

func (t *Tokenizer) encode(out *output, text string) { t.cut(out, t.raw, text, false) }

// cut puts out the added tokens that f finds in text, and what lies between
// them in turn. normalized says that text is normalised, so that only splitting
// is left to do.
func (t *Tokenizer) cut(out *output, f *finder, text string, normalized bool) {
	from, taken := 0, 0
	for {
		m, ok := f.next(text, from, taken)
		if !ok {
			m.start = len(text)
		}
		if taken < m.start {
			if part := text[taken:m.start]; normalized {
				t.split(out, part)
			} else if part = t.normalize(part); t.after == nil {
				t.split(out, part)
			} else {
				t.cut(out, t.after, part, true)
			}
		}
		if !ok {
			return
		}
		out.ids = append(out.ids, m.id)
		from, taken = m.resume, m.end
	}
}

// split puts out the tokens of text, which is normalised and has no added
// tokens.
func (t *Tokenizer) split(out *output, text string) {
	if !t.pattern.cutNumbers {
		t.splitPart(out, text)
		return
	}
	for len(text) > 0 {
		start, end := nextNumber(t.class, text)
		t.splitPart(out, text[:start])
		t.splitPart(out, text[start:end])
		text = text[end:]
	}
}

func (t *Tokenizer) splitPart(out *output, text string) {
	for i := 0; i < len(text); {
		end := t.pattern.next(t.class, text, i)
		p := text[i:end]
		i = end
		if id, ok := t.pieces.find(p); ok {
			out.ids = append(out.ids, id)
		} else {
			out.ids = t.merger.merge(out.ids, p)
		}
		if out.counting {
			out.counted += len(out.ids)
			out.ids = out.ids[:0]
		}
	}
}
