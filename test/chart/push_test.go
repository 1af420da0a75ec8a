package chart

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"federator.dev/federator/api/v1alpha1"
	"federator.dev/federator/test/kube"
)

// hookSecret is the secret of the webhook.
const hookSecret = "a secret of the git host's"

// pushed sends push events, signed and unsigned, as GitHub does.
func pushed(t *testing.T, hub *kube.Hub, address string) {
	t.Helper()
	must(t, hub.Apply(t.Context(), []byte(`
apiVersion: federator.dev/v1alpha1
kind: PolicySource
metadata: {name: team}
spec: {url: "https://127.0.0.1:1/team/policies"}
`)))
	const body = `{"ref":"refs/heads/main","repository":{"clone_url":"https://127.0.0.1:1/team/policies.git"}}`
	post := func(secret string) int {
		mac := hmac.New(sha256.New, []byte(secret))
		mac.Write([]byte(body))
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+address+"/hooks/git", strings.NewReader(body))
		must(t, err)
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("X-Hub-Signature-256", "sha256="+hex.EncodeToString(mac.Sum(nil)))
		resp, err := http.DefaultClient.Do(req)
		must(t, err)
		must(t, resp.Body.Close())
		return resp.StatusCode
	}
	if code := post("another secret, which is wrong"); code != http.StatusUnauthorized {
		t.Errorf("a wrong signature: %d", code)
	}
	must(t, until(t.Context(), func() error {
		if code := post(hookSecret); code != http.StatusAccepted {
			return fmt.Errorf("a push: %d", code)
		}
		var ps v1alpha1.PolicySource // followed once its status says anything
		text, err := hub.Client().CoreV1().RESTClient().Get().AbsPath("/apis/federator.dev/v1alpha1/policysources/team").Do(t.Context()).Raw()
		if err == nil {
			err = json.Unmarshal(text, &ps)
		}
		if err == nil && ps.Status.LastPush == nil {
			err = errors.New("status.lastPush is not there")
		}
		return err
	}))
}
