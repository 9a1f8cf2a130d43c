package accept

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"testing"
)

// functionSchemas are those of the function-calling sets of the sample.
func functionSchemas(b testing.TB) (schemas []json.RawMessage, texts [][]byte) {
	for _, set := range []string{"BFCL", "Glaiveai2K"} {
		files, _ := filepath.Glob(filepath.Join(dataDir(b), "jsonschemabench", set, "*.json"))
		for _, f := range files {
			file := readSample(b, f)
			for _, tt := range file.Tests {
				if tt.Valid {
					schemas = append(schemas, file.Schema)
					texts = append(texts, tt.Data)
					break
				}
			}
		}
	}
	if len(schemas) == 0 {
		b.Fatal("no function schemas")
	}
	return schemas, texts
}

func BenchmarkCompile(b *testing.B) {
	schemas, _ := functionSchemas(b)
	n := 0
	for b.Loop() {
		if _, err := Compile(context.Background(), schemas[n%len(schemas)], Options{}); err != nil {
			b.Fatal(err)
		}
		n++
	}
}

// BenchmarkStep reads a fitting text, state by state: first after Compile, and
// again when all is known.
func BenchmarkStep(b *testing.B) {
	schemas, texts := functionSchemas(b)
	for _, visit := range []string{"first", "warm"} {
		b.Run(fmt.Sprintf("visit=%s", visit), func(b *testing.B) {
			bytes := 0
			for i := 0; b.Loop(); i++ {
				if visit == "first" || i == 0 {
					b.StopTimer()
				}
				k := i % len(schemas)
				if visit == "warm" {
					k = 0
				}
				var a *Automaton
				if visit == "first" || i == 0 {
					var err error
					if a, err = Compile(context.Background(), schemas[k], Options{}); err != nil {
						b.Fatal(err)
					}
					warm = a
					b.StartTimer()
				}
				a = warm
				s := a.Start()
				for _, c := range texts[k] {
					s, _ = a.Step(s, c)
				}
				if s == 0 {
					b.Fatal("does not fit")
				}
				bytes += len(texts[k])
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(bytes), "ns/byte")
		})
	}
}

var warm *Automaton

// BenchmarkTools compiles a choice of 200 tools and reads the start of a call.
func BenchmarkTools(b *testing.B) {
	schemas, _ := functionSchemas(b)
	for _, kind := range []string{"anyOf", "oneOf"} {
		b.Run("kind="+kind, func(b *testing.B) {
			all := fmt.Sprintf(`{%q:[`, kind)
			for i := range 200 {
				if i > 0 {
					all += ","
				}
				all += fmt.Sprintf(`{"type":"object","properties":{"name":{"const":"tool_%d"},"arguments":%s},"required":["name","arguments"],"additionalProperties":false}`, i, schemas[i])
			}
			all += "]}"
			for b.Loop() {
				a, err := Compile(context.Background(), []byte(all), Options{})
				if err != nil {
					b.Fatal(err)
				}
				s := a.Start()
				for _, c := range []byte(`{"name":"tool_77","arguments":{`) {
					if s, err = a.Step(s, c); err != nil || s == 0 {
						b.Fatalf("%c: %v", c, err)
					}
				}
			}
		})
	}
}

func BenchmarkHostile(b *testing.B) {
	for name, s := range hostile() {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				Compile(context.Background(), []byte(s[0]), Options{})
			}
		})
	}
}
