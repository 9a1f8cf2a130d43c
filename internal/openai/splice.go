package openai

import (
	"bytes"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// A Value is one JSON value of a scanned document.
type Value struct {
	Raw   []byte // the value's bytes; aliases the document
	Start int    // position in the scanned document; 0 for a value that Set put there
	End   int
}

// A Member is a key, unescaped, and its value.
type Member struct {
	Key string
	Value
}

// An Object is a view of a scanned object and the changes to be made to it.
// It is not safe for concurrent use.
type Object struct {
	raw        []byte // the document from base on
	base       int    // position of raw[0] in the scanned document
	start, end int    // of the object's braces in raw
	members    []member
	edited     bool
}

// A member of an Object: key and value as they stand in the document, or as
// Set left them.
type member struct {
	Member
	at   int    // of the key's quote in raw; -1 for an added member
	tail int    // of the value's end in raw
	set  []byte // replaces the value
	gone bool
}

func (o *Object) add(quoted []byte, at int, v Value) {
	key := quoted[1 : len(quoted)-1]
	if bytes.IndexByte(key, '\\') >= 0 {
		key = unquote(key)
	}
	o.members = append(o.members, member{Member: Member{string(key), v}, at: at, tail: v.End - o.base})
}

func (o *Object) find(key string) *member {
	for i := range o.members {
		if m := &o.members[i]; m.Key == key && !m.gone {
			return m
		}
	}
	return nil
}

// Get returns the value of key as Set and Delete left it.
func (o *Object) Get(key string) (Value, bool) {
	if m := o.find(key); m != nil {
		return m.Value, true
	}
	return Value{}, false
}

// Members returns the members in the order of the document, added ones last.
func (o *Object) Members() []Member {
	ms := make([]Member, 0, len(o.members))
	for i := range o.members {
		if !o.members[i].gone {
			ms = append(ms, o.members[i].Member)
		}
	}
	return ms
}

// Set makes raw, which must be valid JSON, the value of key: in its place if
// the key is there, else behind the last member. It keeps raw.
func (o *Object) Set(key string, raw []byte) {
	o.edited = true
	if m := o.find(key); m != nil {
		m.set, m.Value = raw, Value{Raw: raw}
		return
	}
	o.members = append(o.members, member{Member: Member{key, Value{Raw: raw}}, at: -1, set: raw})
}

// Delete removes key and one comma beside it.
func (o *Object) Delete(key string) {
	if m := o.find(key); m != nil {
		o.edited = true
		m.gone = true
	}
}

// Bytes returns the document with the changes made. Bytes that belong to no
// changed member are those of the document. Without changes the result aliases
// the document.
func (o *Object) Bytes() []byte {
	if !o.edited {
		return o.raw
	}
	size := len(o.raw)
	for i := range o.members {
		size += len(o.members[i].set) + len(o.members[i].Key) + 8
	}
	out := make([]byte, 0, size)
	last := o.start + 1 // in raw: behind the brace or the value before
	lead := o.raw[:last]
	if len(o.members) > 0 && o.members[0].at >= 0 {
		lead = o.raw[:o.members[0].at] // white space before the first key stays whoever is first
	}
	out = append(out, lead...)
	first := true
	for i := range o.members {
		m := &o.members[i]
		switch {
		case m.gone:
		case m.at < 0:
			if !first {
				out = append(out, ',')
			}
			out = append(AppendString(out, m.Key), ':')
			out = append(out, m.set...)
			first = false
		default:
			if !first {
				out = append(out, o.raw[last:m.at]...)
			}
			if m.set != nil {
				out = append(out, o.raw[m.at:m.valueStart(o)]...)
				out = append(out, m.set...)
			} else {
				out = append(out, o.raw[m.at:m.tail]...)
			}
			first = false
		}
		if m.at >= 0 {
			last = m.tail
		}
	}
	return append(out, o.raw[last:]...)
}

// valueStart finds where the value stood before Set replaced it: behind the
// key, the colon and the white space about it.
func (m *member) valueStart(o *Object) int {
	i := skipString(o.raw, m.at)
	i = skipSpace(o.raw, i) + 1
	return skipSpace(o.raw, i)
}

// Elements returns the elements of an array that is part of a scanned
// document, nil for any other value.
func Elements(v Value) []Value {
	if v.Kind() != '[' {
		return nil
	}
	var vs []Value
	i := skipSpace(v.Raw, 1)
	for v.Raw[i] != ']' {
		end := skipValue(v.Raw, i)
		vs = append(vs, Value{v.Raw[i:end:end], v.Start + i, v.Start + end})
		i = skipSpace(v.Raw, end)
		if v.Raw[i] == ',' {
			i = skipSpace(v.Raw, i+1)
		}
	}
	return vs
}

// ObjectOf returns a view of an object that is part of a scanned document. Its
// Bytes are those of the nested object alone: to change the document, Set them
// there.
func ObjectOf(v Value) (*Object, bool) {
	if v.Kind() != '{' {
		return nil, false
	}
	o := &Object{raw: v.Raw, base: v.Start, end: len(v.Raw)}
	i := skipSpace(v.Raw, 1)
	for v.Raw[i] != '}' {
		keyEnd := skipString(v.Raw, i)
		from := skipSpace(v.Raw, skipSpace(v.Raw, keyEnd)+1)
		end := skipValue(v.Raw, from)
		o.add(v.Raw[i:keyEnd], i, Value{v.Raw[from:end:end], v.Start + from, v.Start + end})
		i = skipSpace(v.Raw, end)
		if v.Raw[i] == ',' {
			i = skipSpace(v.Raw, i+1)
		}
	}
	return o, true
}

// Kind returns '{', '[', '"', 'n', 't', 'f', or '0' for a number; 0 for the
// zero Value.
func (v Value) Kind() byte {
	if len(v.Raw) == 0 {
		return 0
	}
	switch c := v.Raw[0]; c {
	case '{', '[', '"', 'n', 't', 'f':
		return c
	}
	return '0'
}

// String returns the text of a string value.
func (v Value) String() (string, bool) {
	if v.Kind() != '"' {
		return "", false
	}
	inner := v.Raw[1 : len(v.Raw)-1]
	if bytes.IndexByte(inner, '\\') < 0 {
		return string(inner), true
	}
	return string(unquote(inner)), true
}

// Int returns the value of a number spelled as an integer that fits 64 bits:
// 1 but not 1.0 or 1e0.
func (v Value) Int() (int64, bool) {
	if v.Kind() != '0' {
		return 0, false
	}
	n, err := strconv.ParseInt(string(v.Raw), 10, 64)
	return n, err == nil
}

// Bool returns the value of true and false.
func (v Value) Bool() (value, ok bool) {
	k := v.Kind()
	return k == 't', k == 't' || k == 'f'
}

// The skip functions walk over JSON that has been validated.

func skipSpace(b []byte, i int) int {
	for b[i] == ' ' || b[i] == '\n' || b[i] == '\r' || b[i] == '\t' {
		i++
	}
	return i
}

// skipString returns the position behind the string whose quote is at i.
func skipString(b []byte, i int) int {
	i++
	for {
		i += bytes.IndexByte(b[i:], '"')
		n := 0
		for b[i-1-n] == '\\' {
			n++
		}
		i++
		if n%2 == 0 {
			return i
		}
	}
}

func skipValue(b []byte, i int) int {
	switch b[i] {
	case '"':
		return skipString(b, i)
	case '{', '[':
		depth := 0
		for {
			switch b[i] {
			case '"':
				i = skipString(b, i)
				continue
			case '{', '[':
				depth++
			case '}', ']':
				if depth--; depth == 0 {
					return i + 1
				}
			}
			i++
		}
	}
	for i < len(b) {
		switch b[i] {
		case ',', '}', ']', ' ', '\n', '\r', '\t':
			return i
		}
		i++
	}
	return i
}

// unquote resolves the escapes of a validated string's inside. A lone
// surrogate, which only Valid lets through, becomes U+FFFD.
func unquote(b []byte) []byte {
	out := make([]byte, 0, len(b))
	for {
		n := bytes.IndexByte(b, '\\')
		if n < 0 {
			return append(out, b...)
		}
		out = append(out, b[:n]...)
		c := b[n+1]
		b = b[n+2:]
		switch c {
		case 'b':
			out = append(out, '\b')
		case 'f':
			out = append(out, '\f')
		case 'n':
			out = append(out, '\n')
		case 'r':
			out = append(out, '\r')
		case 't':
			out = append(out, '\t')
		case 'u':
			r := unhex4(b)
			b = b[4:]
			if utf16.IsSurrogate(r) {
				second := rune(-1)
				if len(b) >= 6 && b[0] == '\\' && b[1] == 'u' {
					second = unhex4(b[2:])
				}
				if r = utf16.DecodeRune(r, second); r != utf8.RuneError {
					b = b[6:]
				}
			}
			out = utf8.AppendRune(out, r)
		default: // " \ /
			out = append(out, c)
		}
	}
}

func unhex4(b []byte) rune {
	return unhex(b[0])<<12 | unhex(b[1])<<8 | unhex(b[2])<<4 | unhex(b[3])
}

// AppendString appends s as a JSON string. It escapes what JSON demands and
// nothing else (no HTML); bytes that are not UTF-8 become U+FFFD.
func AppendString(dst []byte, s string) []byte {
	const digits = "0123456789abcdef"
	dst = append(dst, '"')
	from := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c >= utf8.RuneSelf {
			r, n := utf8.DecodeRuneInString(s[i:])
			if r == utf8.RuneError && n == 1 {
				dst = append(append(dst, s[from:i]...), "\ufffd"...)
				from = i + 1
			}
			i += n
			continue
		}
		if c >= 0x20 && c != '"' && c != '\\' {
			i++
			continue
		}
		dst = append(dst, s[from:i]...)
		switch c {
		case '"', '\\':
			dst = append(dst, '\\', c)
		case '\n':
			dst = append(dst, '\\', 'n')
		case '\r':
			dst = append(dst, '\\', 'r')
		case '\t':
			dst = append(dst, '\\', 't')
		case '\b':
			dst = append(dst, '\\', 'b')
		case '\f':
			dst = append(dst, '\\', 'f')
		default:
			dst = append(dst, '\\', 'u', '0', '0', digits[c>>4], digits[c&15])
		}
		i++
		from = i
	}
	return append(append(dst, s[from:]...), '"')
}
