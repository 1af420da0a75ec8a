package joining

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"unicode"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Protocol is that of connections, by ALPN, over which the agent serves HTTP/2 and federator sends requests. Over all
// others the agent sends requests by HTTP/1.1.
const Protocol = "federator-agent/1"

// The paths of requests to federator. All are POST.
const (
	JoinPath  = "/agent/v1/join"  // with a token
	RenewPath = "/agent/v1/renew" // with a certificate, for another one
	HelloPath = "/agent/v1/hello" // with a certificate: whether it is accepted
)

// MaxBody bounds requests and responses.
const MaxBody = 64 << 10

// MaxVersion bounds the version of an agent.
const MaxVersion = 64

// Request is the body of all requests.
type Request struct {
	// Version is the agent's.
	Version string `json:"version,omitempty"`
	// Token is for JoinPath.
	Token string `json:"token,omitempty"`
	// CSR is a certificate signing request in DER, for JoinPath and RenewPath. Its key and signature count, and nothing
	// else that it asks for.
	CSR []byte `json:"csr,omitempty"`
}

// Response is the body of a response to JoinPath and RenewPath, and, of Member only, to HelloPath.
type Response struct {
	Member string `json:"member"`
	// Certificate and Authorities are PEM: the agent's, and all that federator's own may be of from now on.
	Certificate []byte `json:"certificate,omitempty"`
	Authorities []byte `json:"authorities,omitempty"`
}

// Decode reads a body of at most MaxBody bytes. Fields that are not known are ignored: the other end may be newer.
func Decode(r io.Reader, into any) error {
	text, err := io.ReadAll(io.LimitReader(r, MaxBody+1))
	if err != nil {
		return err
	}
	if len(text) > MaxBody {
		return fmt.Errorf("more than %d bytes", MaxBody)
	}
	d := json.NewDecoder(strings.NewReader(string(text)))
	if err := d.Decode(into); err != nil {
		return errors.New("it is not the JSON that is expected") // the decoder's error may repeat a secret
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("something follows the JSON")
	}
	return nil
}

// WriteError answers with a Status of Kubernetes.
func WriteError(w http.ResponseWriter, code int, reason metav1.StatusReason, format string, args ...any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(code)
	// Only a client that has gone away can make this fail.
	_ = json.NewEncoder(w).Encode(&metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status:   metav1.StatusFailure, Code: int32(code), Reason: reason, Message: fmt.Sprintf(format, args...),
	})
}

// CleanVersion bounds a version, and leaves out what is not to be printed.
func CleanVersion(v string) string {
	v = strings.Map(func(r rune) rune {
		if r > unicode.MaxASCII || !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, v)
	return v[:min(len(v), MaxVersion)]
}
