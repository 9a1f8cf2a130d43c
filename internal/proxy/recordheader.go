package proxy

import (
	"fmt"
	"net/http"
	"strings"
)

// header is the decision as response headers.
func (r *Record) header() http.Header {
	h := http.Header{}
	h.Set("X-Sidecar-Mode", r.Mode)
	if r.Reason != "" {
		h.Set("X-Sidecar-Reason", headerText(r.Reason))
	}
	if v := volatileHeader(r.Volatile); v != "" {
		h.Set("X-Sidecar-Volatile", headerText(v))
	}
	if r.staged() {
		h.Set("X-Sidecar-Tools", headerNames(r.Added))
		h.Set("X-Sidecar-Tool-Tokens", fmt.Sprint(r.ShownTokens))
		if r.TokensExact {
			h.Set("X-Sidecar-Prefix-Tokens", fmt.Sprint(r.PrefixTokens))
			h.Set("X-Sidecar-Expected-Cached-Tokens", fmt.Sprint(r.ExpectedCached))
			if r.Kept > 0 {
				h.Set("X-Sidecar-Kept-Tokens", fmt.Sprint(r.Kept))
			}
		}
	}
	if len(r.Held) > 0 {
		h.Set("X-Sidecar-Held", headerHeld(r.Held))
	}
	if r.Fallback != "" {
		h.Set("X-Sidecar-Fallback", headerText(r.Fallback))
	}
	parts := make([]string, len(r.Timing))
	for i, t := range r.Timing {
		parts[i] = fmt.Sprintf("%s;dur=%.3f", t.Stage, t.Milliseconds)
	}
	if len(parts) > 0 {
		h.Set("Server-Timing", strings.Join(parts, ", "))
	}
	return h
}

// headerHeld counts tools by status: "proved=3, checked=1".
func headerHeld(held []Held) string {
	n := map[string]int{}
	for _, h := range held {
		n[statusOf(h.Status)]++
	}
	var parts []string
	for _, status := range []string{"proved", "bounded", checkedAfter, unproved, unconstrained} {
		if n[status] > 0 {
			parts = append(parts, fmt.Sprintf("%s=%d", status, n[status]))
		}
	}
	return strings.Join(parts, ", ")
}

// maxHeaderNames bounds the list of names in a header, in bytes: Node's clients
// take 16 kB of headers. The record has them all.
const maxHeaderNames = 2048

// headerNames lists the tools that a turn added, as many as fit.
func headerNames(added []Chosen) string {
	var b strings.Builder
	for i, c := range added {
		if b.Len()+len(c.Name) > maxHeaderNames {
			fmt.Fprintf(&b, ",+%d", len(added)-i)
			break
		}
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(c.Name)
	}
	return b.String()
}

// headerText makes a reason fit a header: one line of printable ASCII, at most
// 200 bytes.
func headerText(s string) string {
	b := []byte(s[:min(len(s), 200)])
	for i, c := range b {
		if c < ' ' || c > '~' {
			b[i] = ' '
		}
	}
	return string(b)
}
