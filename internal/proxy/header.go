package proxy

import (
	"net/http"
	"net/textproto"
	"strings"
)

// hopByHop are the headers of RFC 9110 section 7.6.1 and their old relatives,
// which concern one connection alone.
var hopByHop = map[string]bool{
	"Connection": true, "Proxy-Connection": true, "Keep-Alive": true, "Te": true, "Trailer": true,
	"Transfer-Encoding": true, "Upgrade": true, "Proxy-Authenticate": true, "Proxy-Authorization": true,
}

// ownRequest are headers of a request that we set ourselves. Accept-Encoding
// is one since a compressed stream cannot be checked event by event.
var ownRequest = map[string]bool{
	"Host": true, "Content-Length": true, "Expect": true, "Accept-Encoding": true, "X-Request-Id": true,
}

// ownReply are headers of a reply that the adapters set.
var ownReply = map[string]bool{"Date": true, "Content-Length": true}

// endToEnd copies src to dst without hop-by-hop headers, those that Connection
// names, and own.
func endToEnd(dst, src http.Header, own map[string]bool) {
	var named []string
	for _, line := range src["Connection"] {
		for name := range strings.SplitSeq(line, ",") {
			named = append(named, textproto.CanonicalMIMEHeaderKey(strings.TrimSpace(name)))
		}
	}
copying:
	for key, values := range src {
		if hopByHop[key] || own[key] {
			continue
		}
		for _, n := range named {
			if n == key {
				continue copying
			}
		}
		dst[key] = values
	}
}

// validRequestID says whether a client's request id may be passed on: up to
// 128 visible ASCII characters.
func validRequestID(id string) bool {
	if len(id) == 0 || len(id) > 128 {
		return false
	}
	for i := range len(id) {
		if id[i] <= ' ' || id[i] >= 0x7f {
			return false
		}
	}
	return true
}

// badHeader returns the name of a header that may not be sent on, or "".
func badHeader(h http.Header) string {
	for name, values := range h {
		for i := range len(name) {
			if c := name[i]; c <= ' ' || c >= 0x7f || strings.IndexByte(`"(),/:;<=>?@[\]{}`, c) >= 0 {
				return name
			}
		}
		for _, v := range values {
			for i := range len(v) {
				if c := v[i]; c < ' ' && c != '\t' || c == 0x7f {
					return name
				}
			}
		}
		if name == "" {
			return name
		}
	}
	return ""
}
