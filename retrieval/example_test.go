package retrieval_test

import (
	"encoding/json"
	"fmt"

	"github.com/toolsidecar/sidecar/retrieval"
)

func Example() {
	ix, err := retrieval.NewIndex([]retrieval.Tool{
		{Name: "shop__refund_order", Description: "Give the money for an order back.", Raw: json.RawMessage(`{"name":"shop__refund_order"}`)},
		{Name: "shop__list_orders", Description: "List orders, newest first.", Raw: json.RawMessage(`{"name":"shop__list_orders"}`)},
		{Name: "mail__send_message", Description: "Send an e-mail.", Raw: json.RawMessage(`{"name":"mail__send_message"}`)},
	}, retrieval.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	q := ix.Segment([]retrieval.Message{
		{Role: "user", Text: "Which orders came in today?"},
		{Role: "assistant", Calls: []string{"shop__list_orders"}},
		{Role: "tool", Text: "ord_7"},
		{Role: "user", Text: "Refund the order and tell the customer by mail"},
	})
	hits := ix.Search(q, 10)
	chosen := retrieval.Select(ix, hits, retrieval.SelectConfig{
		Shown: func(name string) bool { return name == "shop__list_orders" },
	}, func(text string) int { return len(text) / 4 })
	for _, tool := range chosen.Tools {
		fmt.Println(ix.Tool(tool).Name)
	}
	// Output:
	// shop__refund_order
	// mail__send_message
}
