package tokenizer

import (
	_ "embed"
	"sync"
)

//go:generate go run qwen3_gen.go -in ../../.cache/vocab/qwen3.json -out qwen3.pack

// qwen3Pack is the vocabulary of Qwen3, which Alibaba Cloud publishes under the
// Apache licence 2.0; see qwen3.LICENSE.
//
//go:embed qwen3.pack
var qwen3Pack []byte

var qwen3 = sync.OnceValue(func() *Tokenizer {
	src, err := unpack(qwen3Pack)
	if err != nil {
		panic("tokenizer: embedded vocabulary: " + err.Error())
	}
	t, err := build(src)
	if err != nil {
		panic("tokenizer: embedded vocabulary: " + err.Error())
	}
	return t
})

// Qwen3 is the embedded vocabulary of Qwen3: 151,643 ordinary and 26 added
// tokens. It is decoded at the first call.
func Qwen3() *Tokenizer { return qwen3() }
