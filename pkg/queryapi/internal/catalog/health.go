package catalog

import (
	"fmt"
	"net/http"
	"slices"
)

// isHealth reports whether a path is a health check: /healthz, /livez, /readyz, or their
// only individual check, ping.
func isHealth(parts []string) bool {
	return slices.Contains([]string{"healthz", "livez", "readyz"}, parts[0]) && (len(parts) == 1 || len(parts) == 2 && parts[1] == "ping")
}

// serveHealth responds as a healthy kube-apiserver: a caller that gets here is
// authenticated, and is served from memory. How fresh that is, every response says.
func serveHealth(w http.ResponseWriter, r *http.Request, parts []string) error {
	h := w.Header()
	h.Set("Content-Type", "text/plain; charset=utf-8")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-cache, private")
	text := "ok"
	if len(parts) == 1 && r.URL.Query().Has("verbose") {
		text = fmt.Sprintf("[+]ping ok\n%s check passed\n", parts[0])
	}
	_, _ = w.Write([]byte(text)) // the client may be gone
	return nil
}
