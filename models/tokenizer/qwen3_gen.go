//go:build ignore

// Qwen3_gen packs a tokenizer.json for embedding.
package main

import (
	"bytes"
	"flag"
	"log"
	"os"

	"github.com/toolsidecar/sidecar/models/tokenizer"
)

func main() {
	log.SetFlags(0)
	in := flag.String("in", "", "tokenizer.json to read")
	out := flag.String("out", "", "file to write")
	flag.Parse()
	data, err := os.ReadFile(*in)
	if err != nil {
		log.Fatal(err)
	}
	var b bytes.Buffer
	if err := tokenizer.Pack(&b, data, "qwen3"); err != nil {
		log.Fatalf("%s: %v", *in, err)
	}
	if err := os.WriteFile(*out, b.Bytes(), 0o644); err != nil {
		log.Fatal(err)
	}
}
