package tokenizer

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"fmt"
	"maps"
	"slices"
	"testing"

	loader "github.com/pkoukk/tiktoken-go-loader"
)

// rankFile is a rank file of tiktoken-go's offline loader.
func rankFile(tb testing.TB, encoding string) []byte {
	tb.Helper()
	ranks, err := loader.NewOfflineLoader().LoadTiktokenBpe(encoding + ".tiktoken")
	if err != nil {
		tb.Fatal(err)
	}
	var b bytes.Buffer
	for _, s := range slices.SortedFunc(maps.Keys(ranks), func(a, b string) int { return cmp.Compare(ranks[a], ranks[b]) }) {
		fmt.Fprintf(&b, "%s %d\n", base64.StdEncoding.EncodeToString([]byte(s)), ranks[s])
	}
	return b.Bytes()
}
