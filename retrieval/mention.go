package retrieval

import "strings"

// A tool name spelled out in a text is a wish that no ranking may overrule.
// The rules:
//
//   - A mention stands between characters that cannot be part of a name: names
//     are made of ASCII letters, digits, '_' and '-', and of '.', '/' and ':'
//     between such characters. get_user is not mentioned by get_user_profile
//     nor by get_user-v2.
//   - Where several names fit at one place the longest counts alone.
//   - A name that looks like an identifier (it has a '_', '-', '.', '/', ':',
//     a digit or a capital after its first letter) is found whatever the case
//     of its letters; an exact spelling, where there is one, wins.
//   - Any other name is an ordinary word (search, book, ls) and counts only in
//     quotation marks or backquotes, before a '(', or next to "tool" or
//     "function". Otherwise the ranking decides, where the name weighs most:
//     to let "book me a table" force the tool book costs 6.5 points of recall@1
//     and 1.0 of recall@4 on the merged 3,200 tools, 35 of which have such names.
//   - The part after "server__" counts for all tools that bear it, if it looks
//     like an identifier.
//   - A query mentions at most 64 tools; a text that lists a catalog asks for
//     none of it.

// nameByte says whether c may stand anywhere in a name, joins whether only
// inside.
func nameByte(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '_' || c == '-'
}

func joins(c byte) bool { return c == '.' || c == '/' || c == ':' }

// maxName is the length in bytes of the longest name that is looked for.
const maxName = 256

func identifier(name string) bool {
	for i := range len(name) {
		c := name[i]
		if c < 'A' || 'Z' < c && c < 'a' || 'z' < c { // not a letter
			return true
		}
		if i > 0 && c <= 'Z' {
			return true
		}
	}
	return false
}

// addMention registers a tool; tools must come in the order of their names.
func (ix *Index) addMention(tool int32) {
	name := ix.tools[tool].Name
	if len(name) > maxName {
		return
	}
	key := strings.ToLower(name)
	ix.mentions[key] = append(ix.mentions[key], tool)
	if at := strings.LastIndex(name, "__"); at > 0 {
		if within := name[at+len("__"):]; within != "" && identifier(within) {
			key := strings.ToLower(within)
			ix.mentions[key] = append(ix.mentions[key], tool)
		}
	}
}

// mentioned appends the tools named in text that dst does not hold yet, in the
// order of the text.
func (ix *Index) mentioned(dst []int32, text string) []int32 {
	for i := 0; i < len(text); {
		if !nameByte(text[i]) {
			i++
			continue
		}
		end := i + 1
		for end < len(text) && (nameByte(text[end]) || joins(text[end]) && end+1 < len(text) && nameByte(text[end+1])) {
			end++
		}
		dst = ix.run(dst, text, i, end)
		i = end
	}
	return dst
}

// run looks for names in text[start:end], a stretch of name characters and
// joins: at each part the longest name that ends at a part counts.
func (ix *Index) run(dst []int32, text string, start, end int) []int32 {
	const most = 16 // parts of one run looked at, so that a/a/a/a… stays linear
	for parts := 0; start < end && parts < most; parts++ {
		found := -1
		tries := 0
		for stop := end; stop > start && tries < most; tries++ {
			if stop-start <= maxName {
				var ok bool
				if dst, ok = ix.named(dst, text, start, stop); ok {
					found = stop
					break
				}
			}
			stop--
			for stop > start && !joins(text[stop]) {
				stop--
			}
		}
		if found < 0 {
			for found = start; found < end && !joins(text[found]); found++ {
			}
		}
		start = found + 1
	}
	return dst
}

// named appends the tools that text[start:stop] names.
func (ix *Index) named(dst []int32, text string, start, stop int) ([]int32, bool) {
	var folded [maxName]byte
	name := text[start:stop]
	for i := range len(name) {
		c := name[i]
		if 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		folded[i] = c
	}
	tools := ix.mentions[string(folded[:len(name)])]
	if len(tools) == 0 {
		return dst, false
	}
	if tool, ok := ix.byName[name]; ok {
		if identifier(name) || spelled(text, start, stop) {
			return appendNew(dst, tool), true
		}
		return dst, false
	}
	ok := false
	for _, tool := range tools {
		if identifier(ix.tools[tool].Name) || spelled(text, start, stop) {
			dst, ok = appendNew(dst, tool), true
		}
	}
	return dst, ok
}

// spelled says whether text[start:stop], an ordinary word, is meant as a name.
func spelled(text string, start, stop int) bool {
	if stop < len(text) && text[stop] == '(' {
		return true
	}
	for _, kind := range [...]string{"tool", "function"} {
		if before := start - len(kind) - 1; before >= 0 && text[start-1] == ' ' && strings.EqualFold(text[before:start-1], kind) &&
			(before == 0 || !nameByte(text[before-1])) {
			return true
		}
		if after := stop + 1 + len(kind); after <= len(text) && text[stop] == ' ' && strings.EqualFold(text[stop+1:after], kind) &&
			(after == len(text) || !nameByte(text[after])) {
			return true
		}
	}
	if start == 0 || stop == len(text) {
		return false
	}
	switch c := text[start-1]; c {
	case '"', '\'', '`':
		return text[stop] == c
	}
	return strings.HasSuffix(text[:start], "“") && strings.HasPrefix(text[stop:], "”")
}

// maxNamed is how many tools a query may name.
const maxNamed = 64

// appendNew appends a tool that is not there yet, while there is room.
func appendNew(dst []int32, tool int32) []int32 {
	if len(dst) >= maxNamed {
		return dst
	}
	for _, t := range dst {
		if t == tool {
			return dst
		}
	}
	return append(dst, tool)
}
