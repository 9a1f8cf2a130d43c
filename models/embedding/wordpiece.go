package embedding

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

const (
	unknown = "[UNK]"
	// maxWordRunes is the length in characters from which on a word is unknown as a
	// whole, as in BERT's own tokenizer.
	maxWordRunes = 100
)

// wordpiece is a vocabulary of word beginnings and continuations.
type wordpiece struct {
	first   map[string]int32 // pieces that begin a word
	next    map[string]int32 // pieces that continue one, without their "##"
	unknown int32
	longest int // bytes of the longest piece
}

func newWordpiece(vocab []string) *wordpiece {
	w := &wordpiece{first: make(map[string]int32, len(vocab)), next: make(map[string]int32, len(vocab)/4), unknown: -1}
	for id, piece := range vocab {
		into := w.first
		if rest, ok := strings.CutPrefix(piece, "##"); ok && rest != "" {
			into, piece = w.next, rest
		}
		into[piece] = int32(id)
		w.longest = max(w.longest, len(piece))
	}
	if id, ok := w.first[unknown]; ok {
		w.unknown = id
	}
	return w
}

// tokens calls f with the token ids of a text in order: lower case, accents
// dropped, split at white space, around every punctuation mark and every Chinese
// character, and each word into the longest pieces from the left.
func (w *wordpiece) tokens(text string, f func(id int32)) {
	var word []byte
	flush := func() {
		if len(word) > 0 {
			w.word(word, f)
			word = word[:0]
		}
	}
	for i := 0; i < len(text); {
		c := text[i]
		if c < utf8.RuneSelf {
			i++
			switch {
			case 'a' <= c && c <= 'z' || '0' <= c && c <= '9':
				word = append(word, c)
			case 'A' <= c && c <= 'Z':
				word = append(word, c+'a'-'A')
			case c == ' ' || c == '\t' || c == '\n' || c == '\r':
				flush()
			case c < ' ' || c == 0x7f: // dropped
			default:
				flush()
				word = append(word, c)
				flush()
			}
			continue
		}
		r, size := utf8.DecodeRuneInString(text[i:])
		i += size
		switch {
		case r == utf8.RuneError || unicode.In(r, unicode.Cc, unicode.Cf, unicode.Co, unicode.Cs):
		case unicode.IsSpace(r) || unicode.Is(unicode.Zs, r):
			flush()
		case chinese(r) || unicode.IsPunct(r):
			flush()
			word = utf8.AppendRune(word, r)
			flush()
		default:
			word = appendPlain(word, r)
		}
	}
	flush()
}

// appendPlain appends a character in lower case without its accents.
func appendPlain(dst []byte, r rune) []byte {
	if unicode.Is(unicode.Mn, r) {
		return dst
	}
	var one [utf8.UTFMax]byte
	var room [32]byte // no decomposition is longer
	parts := norm.NFD.Append(room[:0], one[:utf8.EncodeRune(one[:], r)]...)
	for len(parts) > 0 {
		p, size := utf8.DecodeRune(parts)
		parts = parts[size:]
		if !unicode.Is(unicode.Mn, p) {
			dst = utf8.AppendRune(dst, unicode.ToLower(p))
		}
	}
	return dst
}

// chinese says whether BERT's tokenizer sets a character apart: the blocks of
// CJK ideographs, kana and hangul not among them.
func chinese(r rune) bool {
	return 0x4e00 <= r && r <= 0x9fff || 0x3400 <= r && r <= 0x4dbf || 0x20000 <= r && r <= 0x2a6df || 0x2a700 <= r && r <= 0x2b73f ||
		0x2b740 <= r && r <= 0x2b81f || 0x2b820 <= r && r <= 0x2ceaf || 0xf900 <= r && r <= 0xfaff || 0x2f800 <= r && r <= 0x2fa1f
}

// word yields the pieces of one word, or the unknown token where it has none.
func (w *wordpiece) word(word []byte, f func(id int32)) {
	if len(word) > maxWordRunes && utf8.RuneCount(word) > maxWordRunes {
		f(w.unknown)
		return
	}
	if id, ok := w.first[string(word)]; ok {
		f(id)
		return
	}
	var ids [maxWordRunes]int32
	n := 0
	pieces := w.first
	for at := 0; at < len(word); pieces = w.next {
		end := min(len(word), at+w.longest)
		for ; end > at; end-- {
			if id, ok := pieces[string(word[at:end])]; ok {
				ids[n] = id
				n++
				break
			}
		}
		if end == at {
			f(w.unknown)
			return
		}
		at = end
	}
	for _, id := range ids[:n] {
		f(id)
	}
}
