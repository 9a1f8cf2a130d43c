//go:build unix

package tokenizer

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/pkoukk/tiktoken-go"
	loader "github.com/pkoukk/tiktoken-go-loader"
)

// benchTexts are about 1 MB each, but for the short prompt.
func benchTexts(b *testing.B) []struct{ name, text string } {
	const mb = 1 << 20
	return []struct{ name, text string }{
		{"english", prose(b, mb)},
		{"code", code(b, mb)},
		{"log", logText(mb)},
		{"tools", toolsText(mb)},
		{"world", worldText(mb)},
		{"prompt-2k", toolsText(2 << 10)},
		{"letter-100k", strings.Repeat("a", 100_000)},
		{"letter-1M", strings.Repeat("a", 1_000_000)},
		{"space-1M", strings.Repeat(" ", 1_000_000)},
		{"cjk-1M", strings.Repeat("中", 333_333)},
	}
}

// cpuTime is what the process has used. On a machine that others use too, bytes
// per CPU second say more than bytes per second.
func cpuTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func reportCPU(b *testing.B, bytes int, start time.Duration) {
	b.ReportMetric(float64(b.N)*float64(bytes)/1e6/(cpuTime(b)-start).Seconds(), "MB/cpu-s")
}

func BenchmarkEncode(b *testing.B) {
	vocabs := []*Tokenizer{Qwen3()}
	for _, name := range []string{"cl100k_base", "o200k_base"} {
		cfg := encodings[name]
		cfg.Name = name
		t, err := ParseRanks(rankFile(b, name), cfg)
		if err != nil {
			b.Fatal(err)
		}
		vocabs = append(vocabs, t)
	}
	for _, name := range []string{"smollm2", "llama3"} {
		path := filepath.Join("../../.cache/vocab", name+".json")
		if _, err := os.Stat(path); err != nil {
			continue
		}
		t, err := Load(path)
		if err != nil {
			b.Fatal(err)
		}
		vocabs = append(vocabs, t)
	}
	for _, t := range vocabs {
		for _, text := range benchTexts(b) {
			b.Run("vocab="+t.Name()+"/text="+text.name, func(b *testing.B) {
				b.SetBytes(int64(len(text.text)))
				b.ReportAllocs()
				var ids []int32
				start := cpuTime(b)
				for b.Loop() {
					ids = t.Encode(ids[:0], text.text)
				}
				reportCPU(b, len(text.text), start)
				b.ReportMetric(float64(len(ids)), "ids")
			})
		}
	}
}

// BenchmarkPeer is tiktoken-go on the first 64 kB of the same texts, 2 kB where
// it is quadratic.
func BenchmarkPeer(b *testing.B) {
	tiktoken.SetBpeLoader(loader.NewOfflineLoader())
	for _, name := range []string{"cl100k_base", "o200k_base"} {
		enc, err := tiktoken.GetEncoding(name)
		if err != nil {
			b.Fatal(err)
		}
		for _, text := range benchTexts(b) {
			n := 64 << 10
			if strings.HasPrefix(text.name, "letter") {
				n = 2 << 10
			} else if strings.HasSuffix(text.name, "-1M") || text.name == "prompt-2k" {
				continue
			}
			part := cutText(text.text, n)
			b.Run("peer=tiktoken-go/vocab="+name+"/text="+text.name, func(b *testing.B) {
				b.SetBytes(int64(len(part)))
				b.ReportAllocs()
				start := cpuTime(b)
				for b.Loop() {
					enc.EncodeOrdinary(part)
				}
				reportCPU(b, len(part), start)
			})
		}
	}
}

func BenchmarkCount(b *testing.B) {
	t := Qwen3()
	text := toolsText(1 << 20)
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		t.Count(text)
	}
}

func BenchmarkDecode(b *testing.B) {
	t := Qwen3()
	text := prose(b, 1<<20)
	ids := t.Encode(nil, text)
	var buf []byte
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		buf, _ = t.Decode(buf[:0], ids)
	}
}

// BenchmarkLoad is what the first call of Qwen3 takes, and the heap it leaves.
func BenchmarkLoad(b *testing.B) {
	b.Run("vocab=qwen3/from=embedded", func(b *testing.B) {
		var before, after runtime.MemStats
		var t *Tokenizer
		runtime.GC()
		runtime.ReadMemStats(&before)
		for b.Loop() {
			src, err := unpack(qwen3Pack)
			if err != nil {
				b.Fatal(err)
			}
			if t, err = build(src); err != nil {
				b.Fatal(err)
			}
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/1e6, "heap-MB")
		runtime.KeepAlive(t)
	})
	for _, name := range []string{"qwen3", "llama3", "smollm2"} {
		data, err := os.ReadFile(filepath.Join("../../.cache/vocab", name+".json"))
		if err != nil {
			continue
		}
		b.Run("vocab="+name+"/from=json", func(b *testing.B) {
			for b.Loop() {
				if _, err := Parse(data); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	ranks := rankFile(b, "o200k_base")
	b.Run("vocab=o200k_base/from=ranks", func(b *testing.B) {
		for b.Loop() {
			if _, err := ParseRanks(ranks, encodings["o200k_base"]); err != nil {
				b.Fatal(err)
			}
		}
	})
}
