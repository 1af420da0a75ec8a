package externaldata_test

import (
	"fmt"
	"io"
	"net/http"
	"testing"
	"testing/synctest"

	"federator.dev/federator/pkg/policysource/externaldata"
)

// TestManager_WhatIsInvalidStaysSo: an answer that is no document is not what was taken last, so that its ETag may not stand for it.
func TestManager_WhatIsInvalidStaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, externaldata.Options{})
		versions := []string{`{"web": "x"}`, `{"web": 1}`}
		version := 0
		r.set(func() {
			r.answer = func(w http.ResponseWriter, req *http.Request) {
				r.mu.Lock()
				etag, body := fmt.Sprintf(`"%d"`, version), versions[version]
				r.mu.Unlock()
				w.Header().Set("Etag", etag)
				if req.Header.Get("If-None-Match") == etag {
					w.WriteHeader(http.StatusNotModified)
					return
				}
				_, _ = io.WriteString(w, body)
			}
		})
		r.sources(r.https())
		r.want(`Current: {"web":"x"}`)
		r.set(func() { version = 1 })
		for range 3 {
			r.Sync("cmdb")
			r.want(`Invalid: {"web":"x"}?`, "it does not match its schema")
		}
		r.set(func() { version = 0 })
		r.Sync("cmdb")
		r.want(`Current: {"web":"x"}`)
	})
}
