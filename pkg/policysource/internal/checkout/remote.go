package checkout

import (
	"net"
	"net/url"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

const (
	schemeHTTPS = "https"
	schemeSSH   = "ssh"
	schemeFile  = "file"
)

// Remote is the location of a repository.
type Remote struct {
	Scheme string // https, ssh or file
	User   string // of ssh
	Host   string // without port, an IPv6 address without brackets
	Port   string // "" is the scheme's
	Path   string // as sent to the remote
}

// scpLike is git's short form of an SSH URL: user@host:path.
var scpLike = regexp.MustCompile(`^(?:([A-Za-z0-9._-]+)@)?([A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\]):([^:].*)$`)

// ParseURL parses an https, ssh or file URL, or git's user@host:path. A URL must not
// contain a password, a query or a fragment, because it is shown in statuses.
func ParseURL(raw string) (Remote, error) {
	for _, r := range raw {
		if r <= ' ' || r == 0x7f {
			return Remote{}, fail(ErrRequest, "the URL contains a space or control character")
		}
	}
	if !strings.Contains(raw, "://") {
		m := scpLike.FindStringSubmatch(raw)
		if m == nil {
			return Remote{}, fail(ErrRequest, "the URL is not https://, ssh:// or user@host:path")
		}
		return Remote{Scheme: schemeSSH, User: m[1], Host: strings.Trim(m[2], "[]"), Path: m[3]}.validate()
	}
	u, err := url.Parse(raw)
	if err != nil {
		// The library's error contains the URL, which may contain a password.
		return Remote{}, fail(ErrRequest, "the URL cannot be parsed")
	}
	r := Remote{Scheme: strings.ToLower(u.Scheme), Host: u.Hostname(), Port: u.Port(), Path: u.Path}
	if u.User != nil {
		if _, has := u.User.Password(); has || r.Scheme != schemeSSH {
			return Remote{}, fail(ErrRequest, "the URL contains credentials: use a Secret")
		}
		r.User = u.User.Username()
	}
	switch {
	case u.RawQuery != "" || u.ForceQuery || u.Fragment != "" || u.Opaque != "":
		return Remote{}, fail(ErrRequest, "the URL has a query or a fragment")
	case r.Scheme == "http" || r.Scheme == "git":
		return Remote{}, fail(ErrRequest, "%s is not encrypted: use https or ssh", r.Scheme)
	case r.Scheme == schemeSSH && strings.HasPrefix(r.Path, "/~"):
		r.Path = r.Path[1:] // a home directory, as git has it
	}
	return r.validate()
}

func (r Remote) validate() (Remote, error) {
	switch r.Scheme {
	case schemeFile:
		if r.Host != "" && r.Host != "localhost" || r.Port != "" || !filepath.IsAbs(r.Path) {
			return r, fail(ErrRequest, "a file URL must be file:/// and a path")
		}
		return r, nil
	case schemeHTTPS, schemeSSH:
	default:
		return r, fail(ErrRequest, "the URL's scheme is not https or ssh")
	}
	if port, err := strconv.ParseUint(r.Port, 10, 16); r.Port != "" && (err != nil || port == 0) {
		return r, fail(ErrRequest, "the URL's port is not between 1 and 65535")
	}
	switch {
	case r.Host == "":
		return r, fail(ErrRequest, "the URL has no host")
	case strings.Trim(r.Path, "/") == "":
		return r, fail(ErrRequest, "the URL has no path")
	case strings.HasPrefix(r.Path, "-"):
		return r, fail(ErrRequest, "the URL's path starts with a dash: the remote would interpret it as an option")
	case r.Scheme == schemeSSH && r.User == "":
		r.User = "git"
	}
	return r, nil
}

// address returns host:port to dial.
func (r Remote) address() string {
	port := r.Port
	if port == "" {
		port = map[string]string{schemeHTTPS: "443", schemeSSH: "22"}[r.Scheme]
	}
	return net.JoinHostPort(r.Host, port)
}

// url returns an https remote's URL.
func (r Remote) url() *url.URL {
	host := r.Host
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	if r.Port != "" {
		host += ":" + r.Port
	}
	return &url.URL{Scheme: r.Scheme, Host: host, Path: strings.TrimRight(r.Path, "/")}
}

// Identity is the same for all URLs of one repository on a git host: host and path, in
// lower case, without port, user and ".git".
func (r Remote) Identity() string {
	path := strings.Trim(r.Path, "/")
	return strings.ToLower(r.Host + "/" + strings.TrimSuffix(path, ".git"))
}
