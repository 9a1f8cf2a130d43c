package grammar

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/toolsidecar/sidecar/grammar/accept"
)

// BenchmarkCheck judges a valid instance of each schema of a set, from text to
// verdict: cold, from the bytes of the schema, and warm. An operation is all of
// them.
func BenchmarkCheck(b *testing.B) {
	type pair struct {
		schema, text []byte
		c            *Checked
		oracle       *jsonschema.Schema
	}
	for _, set := range []string{"BFCL", "Glaiveai2K", "MCPspec", "Github_medium"} {
		files := dataFiles(b, "schemas/jsonschemabench/"+set+"/*.json")
		var pairs []pair
		for _, f := range files {
			var file struct {
				Schema json.RawMessage
				Tests  []struct {
					Valid bool
					Data  json.RawMessage
				}
			}
			raw, err := os.ReadFile(f)
			if err != nil || json.Unmarshal(raw, &file) != nil {
				b.Fatal(f, err)
			}
			c, err := Judge(Tool{f, file.Schema}, Open)
			if err != nil {
				continue
			}
			o, err := oracleOf(string(file.Schema))
			if err != nil {
				continue
			}
			for _, t := range file.Tests {
				if t.Valid && len(t.Data) > 0 && t.Data[0] == '{' && validate(o, t.Data) == nil {
					pairs = append(pairs, pair{file.Schema, t.Data, c, o})
					break
				}
			}
		}
		size := 0
		for _, p := range pairs {
			size += len(p.text)
		}
		run := func(name string, f func(p *pair) error) {
			b.Run("set="+set+"/"+name, func(b *testing.B) {
				all := func() {
					for i := range pairs {
						if err := f(&pairs[i]); err != nil {
							b.Fatal(pairs[i].c.name, err)
						}
					}
				}
				all()
				b.SetBytes(int64(size))
				b.ReportAllocs()
				begin := cpuTime()
				for b.Loop() {
					all()
				}
				took := cpuTime() - begin
				b.ReportMetric(float64(took.Nanoseconds())/1e3/float64(b.N*len(pairs)), "cpu-µs/check")
			})
		}
		run("step=warm/judge=ours", func(p *pair) error { return p.c.Check(p.text) })
		run("step=warm/judge=santhosh", func(p *pair) error { return validate(p.oracle, p.text) })
		run("step=cold/judge=ours", func(p *pair) error {
			a, err := accept.Compile(context.Background(), p.schema, accept.Options{})
			if err != nil {
				return err
			}
			return a.Check(p.text)
		})
		run("step=cold/judge=tool", func(p *pair) error { // with what an engine is to be held to
			c, err := compile(context.Background(), "t", p.schema, Open)
			if err != nil {
				return err
			}
			return c.Check(p.text)
		})
		run("step=cold/judge=santhosh", func(p *pair) error {
			o, err := oracleOf(string(p.schema))
			if err != nil {
				return err
			}
			return validate(o, p.text)
		})
	}
}

// validate is santhosh-tekuri/jsonschema from text to verdict.
func validate(s *jsonschema.Schema, text []byte) error {
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return err
	}
	return s.Validate(v)
}
