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

// Secret is a text that is never printed, logged or marshalled: whatever formats
// it gets "[redacted]".
type Secret string

// Format writes the same for every verb.
func (Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, redacted) }

// LogValue hides the secret from slog's handlers.
func (Secret) LogValue() slog.Value { return slog.StringValue(redacted) }

// MarshalText hides the secret from encoders.
func (Secret) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// Auth is how to log in to a remote, and how to know it. HTTPS takes Username and
// Password, or Token, or nothing; SSH takes Key and KnownHosts, both of them.
type Auth struct {
	// Username and Password are for HTTP's basic authentication, which is also how
	// GitHub, GitLab and Gitea take tokens: as the password.
	Username string
	Password Secret
	Token    Secret // a bearer token (RFC 6750)
	CA       []byte // PEM certificates that are trusted beside the system's

	Key        Secret // an SSH private key as ssh-keygen writes it
	Passphrase Secret // of Key
	KnownHosts []byte // as in ~/.ssh/known_hosts; hosts that are not in it are not trusted
}

// validate checks that what is there fits the remote.
func (a Auth) validate(r Remote) error {
	web := a.Username != "" || a.Password != "" || a.Token != "" || len(a.CA) > 0
	shell := a.Key != "" || a.Passphrase != "" || len(a.KnownHosts) > 0
	switch {
	case r.Scheme == schemeHTTPS && shell:
		return fail(ErrRequest, "an SSH key or known hosts are no use to an https URL")
	case r.Scheme == schemeSSH && web:
		return fail(ErrRequest, "a user name, password, token or CA is no use to an ssh URL")
	case r.Scheme == schemeFile && (web || shell):
		return fail(ErrRequest, "a file URL takes no credentials")
	case a.Token != "" && (a.Username != "" || a.Password != ""):
		return fail(ErrRequest, "both a token and a user name or password are given")
	case a.Password != "" && a.Username == "":
		return fail(ErrRequest, "a password is given without a user name")
	case r.Scheme == schemeSSH && a.Key == "":
		return fail(ErrRequest, "an ssh URL needs a private key")
	case r.Scheme == schemeSSH && len(a.KnownHosts) == 0:
		return fail(ErrRequest, "an ssh URL needs known hosts")
	}
	return nil
}

// secrets lists what may not be in any text, in the forms in which it is sent.
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
		// The library's text is not repeated: it is about the key's contents.
		return nil, fail(ErrRequest, "the SSH private key cannot be read, or its passphrase is wrong or missing")
	}
	return s, nil
}
