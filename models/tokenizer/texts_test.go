package tokenizer

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"
)

// fragments are what fuzzed texts are made of: things that some step treats in a
// way of its own.
var fragments = []string{
	" ", "  ", "   ", "\n", "\n\n", "\r\n", "\r", "\t", " \n", "\n ", "\u00a0", "\u2003", "\u0085", "\u3000", "\v", "\f", "\u200b", "\u2028",
	"'", "''", "'s", "'S", "'t", "'re", "'RE", "'Ve", "'m", "'ll", "'lL", "'LL", "'d", "'D", "'ſ", "'st", "’s", "'K", "'r", "'l", "'v",
	"a", "A", "b", "the", "The", "THE", "hello", " world", "camelCase", "HTTPServer", "XMLHttpRequest", "iPhone", "ABCdef", "ABCDEFG", "x1y2",
	"0", "1", "12", "123", "1234", "12345678901234567890", "٣", "٤٥٦", "²", "½", "Ⅷ", "१२३४", "𝟘𝟙", "3.14", "1,000", "①",
	"!", "!!", "...", "/", "//", "/\n", "\n/", "://", "_", "-", "--", "=", "====", "{", "}", `{"name": "`, `", "arguments": {`, "\\", "\"", "<", ">", "<|", "|>", "#", "$", "€",
	"é", "e\u0301", "ü", "ﬁ", "ß", "ẞ", "Ǆ", "ǅ", "ʰ", "ª", "ñ", "Å", "A\u030a", "\u212b", "K", "ö\u0323", "o\u0323\u0308", "\u0301", "\u0323\u0301", "\u034f", "\u0345",
	"日本語", "中文字", "한국어", "가", "각", "ᄒ", "ᅡ", "ᆫ", "ไทย", "हिन्दी", "العربية", "עברית", "Ελληνικά", "Σ", "ς", "Привет", "ПРИВЕТ", "Ђ", "ა", "Ა", "ა", "ᏸ", "Ꭰ",
	"😀", "👨‍👩‍👧‍👦", "🇩🇪", "❤️", "👍🏽", "\ufe0f", "\u200d", "\U0001F1E6", "\u0000", "\u0001", "\u001b[0m", "\u007f", "\u0080", "\ufeff", "\ufffd", "\ufffe", "\uffff", "\U0010ffff", "\U000e0001",
	"\U00010d50", "\U00010d70", "\u1c89", "\u1c8a", "\U00010d40", "\u0897", "\U0001e6c0", "\ua7dc", "\U00016d40", "\U00016d63\U00016d67",
	"<|im_start|>", "<|im_end|>", "<|endoftext|>", "<tool_call>", "</tool_call>", "<think>", "</think>", "<tool_response>", "<|im_start|", "|im_end|>", "<|begin_of_text|>", "<|eot_id|>", "<|endofprompt|>", "<|fim_prefix|>", "<|im_start|>system\n", "<|call|>", "<repo_name>",
	"import os\n", "func main() {\n\t", "    return x\n", "if (a == b) {", "SELECT * FROM t;", "https://example.com/a?b=c&d=1", "user@example.com", "2026-11-30T14:49:35Z", "192.168.0.1", "0xdeadbeef", "C:\\Users\\",
}

// fuzzText is a text of up to max pieces: fragments, random words and characters,
// repetitions.
func fuzzText(r *rand.Rand, max int) string {
	var b strings.Builder
	for range 1 + r.IntN(max) {
		switch k := r.IntN(16); {
		case k < 9:
			b.WriteString(fragments[r.IntN(len(fragments))])
		case k < 11:
			for range 1 + r.IntN(12) {
				b.WriteByte("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"[r.IntN(52)])
			}
		case k < 12:
			b.WriteString(strings.Repeat(fragments[r.IntN(len(fragments))], 1+r.IntN(40)))
		case k < 13:
			for range 1 + r.IntN(8) {
				b.WriteByte(byte(r.IntN(128)))
			}
		case k < 14:
			for range 1 + r.IntN(6) {
				b.WriteRune(randomRune(r, 0x10ffff))
			}
		case k < 15:
			for range 1 + r.IntN(6) {
				b.WriteRune(randomRune(r, 0x3000))
			}
		default:
			for range 1 + r.IntN(20) {
				b.WriteRune(0x300 + rune(r.IntN(0x70)))
			}
		}
	}
	return b.String()
}

func randomRune(r *rand.Rand, max int) rune {
	for {
		if c := rune(r.IntN(max + 1)); utf8.ValidRune(c) {
			return c
		}
	}
}

// prose, code and log are texts of about n bytes for tests and benchmarks. Prose
// and code come from the Go distribution.
func prose(tb testing.TB, n int) string {
	return goText(tb, n, "README.md", "LICENSE", "CONTRIBUTING.md", "SECURITY.md", "src/*/doc.go", "src/cmd/*/README*", "src/cmd/*/*/README*", "src/cmd/*/doc.go", "src/cmd/*/*/doc.go")
}

func code(tb testing.TB, n int) string {
	return goText(tb, n, "src/net/http/*.go", "src/go/types/*.go")
}

var goroot = sync.OnceValue(func() string {
	out, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
})

func goText(tb testing.TB, n int, globs ...string) string {
	tb.Helper()
	var b strings.Builder
	for _, g := range globs {
		files, err := filepath.Glob(filepath.Join(goroot(), g))
		if err != nil {
			tb.Fatal(err)
		}
		for _, f := range files {
			data, err := os.ReadFile(f)
			if err != nil {
				tb.Fatal(err)
			}
			b.Write(data)
			if b.Len() >= n {
				return cutText(b.String(), n)
			}
		}
	}
	if b.Len() == 0 {
		tb.Skipf("no Go source tree at %q", goroot())
	}
	return cutText(strings.Repeat(b.String(), n/b.Len()+1), n)
}

// cutText is at most n bytes of s, whole characters.
func cutText(s string, n int) string {
	for n < len(s) && n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:min(n, len(s))]
}

func logText(n int) string {
	r := rand.New(rand.NewPCG(1, 2))
	var b strings.Builder
	levels := []string{"INFO", "WARN", "ERROR", "DEBUG"}
	for b.Len() < n {
		fmt.Fprintf(&b, "2026-11-%02dT%02d:%02d:%02d.%06dZ %s [worker-%d] request_id=%08x-%04x path=/v1/items/%d status=%d duration_ms=%.3f bytes=%d msg=\"upstream answered\"\n",
			1+r.IntN(30), r.IntN(24), r.IntN(60), r.IntN(60), r.IntN(1e6), levels[r.IntN(4)], r.IntN(64), r.Uint32(), r.IntN(1<<16), r.IntN(1e6), 200+r.IntN(300), r.Float64()*1000, r.IntN(1e6))
	}
	return b.String()[:n]
}

// toolsText is a list of tool schemas as a chat template writes it.
func toolsText(n int) string {
	r := rand.New(rand.NewPCG(3, 4))
	verbs := []string{"get", "list", "create", "update", "delete", "search", "assign", "archive"}
	nouns := []string{"invoice", "customer", "calendar_event", "pull_request", "deployment", "ticket", "shipment", "playlist"}
	var b strings.Builder
	for i := 0; b.Len() < n; i++ {
		v, o := verbs[r.IntN(len(verbs))], nouns[r.IntN(len(nouns))]
		fmt.Fprintf(&b, `{"type": "function", "function": {"name": "%s_%s_%d", "description": "%s the %s that matches the given filter.", "parameters": {"type": "object", "properties": {"%s_id": {"type": "string", "description": "Identifier of the %s"}, "limit": {"type": "integer", "minimum": 1, "maximum": %d}}, "required": ["%s_id"]}}}`+"\n",
			v, o, i, strings.ToUpper(v[:1])+v[1:], strings.ReplaceAll(o, "_", " "), o, o, 1+r.IntN(500), o)
	}
	return b.String()[:n]
}

// worldText mixes scripts whose words aren't separated by spaces, or that
// combine marks.
func worldText(n int) string {
	const s = "自然语言处理是人工智能领域中的一个重要方向。日本語の文章はひらがなとカタカナと漢字を混ぜて書きます。한국어 문장은 띄어쓰기를 합니다. " +
		"Привет, мир! Это предложение написано по-русски. Ελληνικό κείμενο με τόνους. हिन्दी में लिखा हुआ एक वाक्य। ประโยคนี้เขียนเป็นภาษาไทย " +
		"هذه جملة باللغة العربية. Tiếng Việt có nhiều dấu thanh. Größe, Straße, naïve café. 👩‍💻🚀\n"
	return cutText(strings.Repeat(s, n/len(s)+1), n)
}
