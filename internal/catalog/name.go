package catalog

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// toolName makes a name that clients and engines take, [a-zA-Z0-9_-]{1,most},
// of a name that a source uses, such as "files.read" or "/pets/{id}". Equal
// names give equal results, and a name that is one already is kept.
func toolName(name string, most int) string {
	var b strings.Builder
	gap := false
	for _, r := range name {
		switch {
		case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9', r == '-', r == '_':
			if gap && b.Len() > 0 {
				b.WriteByte('_')
			}
			gap = false
			b.WriteRune(r)
		default:
			gap = true
		}
	}
	if b.Len() == 0 && name != "" {
		return "tool_" + digest(name)
	}
	return shorten(b.String(), most)
}

// shorten keeps a name within most bytes. What is cut is told apart by a hash
// of the whole.
func shorten(name string, most int) string {
	if len(name) <= most {
		return name
	}
	d := digest(name)
	return strings.TrimRight(name[:most-1-len(d)], "_-") + "_" + d
}

func digest(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:4])
}

// qualified is a name with its server's before it: "github__create_issue".
func qualified(server, name string, most int) string {
	return shorten(toolName(server, most)+"__"+name, most)
}
