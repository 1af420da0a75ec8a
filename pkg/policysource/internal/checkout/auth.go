package checkout

import (
	"encoding/base64"
	"fmt"
	"io"
	"log/slog"
	"net/url"

	"golang.org/x/crypto/ssh"
)

const redacted = "[redacted]"

// Secret is a text that is never printed, logged or marshaled: it is formatted as
// "[redacted]".
type Secret string

// Format hides the secret for every verb.
func (Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, redacted) }

// LogValue hides the secret from slog's handlers.
func (Secret) LogValue() slog.Value { return slog.StringValue(redacted) }

// MarshalText hides the secret from encoders.
func (Secret) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// Auth has the credentials for a remote, and how to authenticate it. HTTPS allows Username
// and Password, or Token, or nothing; SSH requires Key and KnownHosts.
type Auth struct {
	// Username and Password are for HTTP basic authentication. GitHub, GitLab and Gitea
	// accept tokens as the password.
	Username string
	Password Secret
	Token    Secret // a bearer token (RFC 6750)
	CA       []byte // PEM certificates to trust in addition to the system's

	Key        Secret // an SSH private key in the format of ssh-keygen
	Passphrase Secret // of Key
	KnownHosts []byte // as in ~/.ssh/known_hosts; no other hosts are trusted
}

// validate checks that the credentials fit the remote.
func (a Auth) validate(r Remote) error {
	web := a.Username != "" || a.Password != "" || a.Token != "" || len(a.CA) > 0
	shell := a.Key != "" || a.Passphrase != "" || len(a.KnownHosts) > 0
	switch {
	case r.Scheme == schemeHTTPS && shell:
		return fail(ErrRequest, "an SSH key and known hosts are not allowed with an https URL")
	case r.Scheme == schemeSSH && web:
		return fail(ErrRequest, "a user name, password, token and CA are not allowed with an ssh URL")
	case r.Scheme == schemeFile && (web || shell):
		return fail(ErrRequest, "credentials are not allowed with a file URL")
	case a.Token != "" && (a.Username != "" || a.Password != ""):
		return fail(ErrRequest, "a token is not allowed with a user name or password")
	case a.Password != "" && a.Username == "":
		return fail(ErrRequest, "a password requires a user name")
	case r.Scheme == schemeSSH && a.Key == "":
		return fail(ErrRequest, "an ssh URL requires a private key")
	case r.Scheme == schemeSSH && len(a.KnownHosts) == 0:
		return fail(ErrRequest, "an ssh URL requires known hosts")
	}
	return nil
}

// secrets returns the texts to redact, in the forms in which they are sent.
func (a Auth) secrets() []string {
	var out []string
	for _, s := range []Secret{a.Password, a.Token, a.Key, a.Passphrase} {
		if s != "" {
			out = append(out, string(s), url.QueryEscape(string(s)), url.PathEscape(string(s)))
		}
	}
	if a.Password != "" {
		out = append(out, base64.StdEncoding.EncodeToString([]byte(a.Username+":"+string(a.Password))))
	}
	return out
}

// signer returns the private key for SSH.
func (a Auth) signer() (ssh.Signer, error) {
	var s ssh.Signer
	var err error
	if a.Passphrase != "" {
		s, err = ssh.ParsePrivateKeyWithPassphrase([]byte(a.Key), []byte(a.Passphrase))
	} else {
		s, err = ssh.ParsePrivateKey([]byte(a.Key))
	}
	if err != nil {
		// The library's error is omitted: it may reveal the key's content.
		return nil, fail(ErrRequest, "the SSH private key cannot be read, or its passphrase is wrong or missing")
	}
	return s, nil
}
