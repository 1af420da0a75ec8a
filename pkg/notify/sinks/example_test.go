package sinks_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"

	"federator.dev/federator/pkg/notify/sinks"
)

func ExampleWebhook() {
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Println("received", r.Header.Get("webhook-id"))
		if r.Header.Get("webhook-id") == "v-1" {
			w.Header().Set("Retry-After", "30")
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	defer receiver.Close()
	w, err := sinks.NewWebhook(sinks.WebhookOptions{URL: receiver.URL, Keys: [][]byte{[]byte("a key of 16 bytes or more")}})
	if err != nil {
		panic(err)
	}
	defer w.Close()
	sent, err := w.Send(context.Background(), messages(3))
	var refused *sinks.RefusedError
	if errors.As(err, &refused) {
		fmt.Println(sent, "sent, the rest in", refused.RetryAfter())
	}
	// Output:
	// received v-0
	// received v-1
	// 1 sent, the rest in 30s
}
