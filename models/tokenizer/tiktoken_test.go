package tokenizer

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"

	loader "github.com/pkoukk/tiktoken-go-loader"
)

// rankFile is a rank file of tiktoken-go's offline loader, made once.
func rankFile(tb testing.TB, encoding string) []byte {
	tb.Helper()
	rankFilesMu.Lock()
	defer rankFilesMu.Unlock()
	if data, ok := rankFiles[encoding]; ok {
		return data
	}
	ranks, err := loader.NewOfflineLoader().LoadTiktokenBpe(encoding + ".tiktoken")
	if err != nil {
		tb.Fatal(err)
	}
	var b bytes.Buffer
	for _, s := range slices.SortedFunc(maps.Keys(ranks), func(a, b string) int { return cmp.Compare(ranks[a], ranks[b]) }) {
		fmt.Fprintf(&b, "%s %d\n", base64.StdEncoding.EncodeToString([]byte(s)), ranks[s])
	}
	rankFiles[encoding] = b.Bytes()
	return b.Bytes()
}

var (
	rankFilesMu sync.Mutex // guards rankFiles
	rankFiles   = make(map[string][]byte)
)
