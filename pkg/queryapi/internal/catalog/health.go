package catalog

import (
	"fmt"
	"net/http"
	"slices"
)

// isHealth reports whether a path asks how the server is: /healthz, /livez, /readyz,
// or one check of them. There is one, ping.
func isHealth(parts []string) bool {
	return slices.Contains([]string{"healthz", "livez", "readyz"}, parts[0]) && (len(parts) == 1 || len(parts) == 2 && parts[1] == "ping")
}

// serveHealth answers as kube-apiserver does when all is well: who gets here has
// been let in, and is answered from memory. How fresh that is every answer says.
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
