package webui

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"k8s.io/client-go/rest"

	"federator.dev/federator/pkg/queryapi"
	"federator.dev/federator/pkg/webui/internal/cookies"
)

//go:embed all:dist
var dist embed.FS

// root is the address of the UI.
const root = "/ui"

// Options configure a UI. Logger is required.
type Options struct {
	Logger  *slog.Logger
	Version string // of federator
	// Files are the built files; nil means those that are embedded.
	Files fs.FS
	// Key seals the cookies of sessions, 32 bytes; replicas share it. Nil: one of this process,
	// with which sessions end.
	Key []byte
	// OIDC is where users log in. Nil: with a pasted token only.
	OIDC *OIDC
	// Hub is where writes are sent, with the credentials of their caller only: those of Hub are not
	// used. Nil: there are none.
	Hub *rest.Config
	// Namespace of the hub has the ConfigMaps that stop writes.
	Namespace string
	// Now is the clock; nil means time.Now.
	Now func() time.Time
}

// UI serves the web UI; it is a queryapi.UI. Its methods may be called from any goroutine.
type UI struct {
	log     *slog.Logger
	version string
	files   files
	now     func() time.Time
	origins *http.CrossOriginProtection

	sessions, refreshes cookies.Sealer // of cookies
	oidc                *provider
	relay               *relay // nil without a hub
}

var _ queryapi.UI = (*UI)(nil)

// New returns a UI. It does not use the network.
func New(o Options) (*UI, error) {
	if o.Logger == nil {
		return nil, errors.New("web UI: Logger is required")
	}
	u := &UI{log: o.Logger, version: o.Version, now: o.Now, origins: http.NewCrossOriginProtection()}
	if u.now == nil {
		u.now = time.Now
	}
	built := o.Files
	if built == nil {
		var err error
		if built, err = fs.Sub(dist, "dist"); err != nil {
			return nil, fmt.Errorf("web UI: %w", err)
		}
	}
	var err error
	if u.files, err = readFiles(built); err != nil {
		return nil, err
	}
	if err := u.makeSealers(o); err != nil {
		return nil, fmt.Errorf("web UI: %w", err)
	}
	if o.Hub != nil {
		if u.relay, err = newRelay(o.Hub, o.Namespace, o.Logger, u.now); err != nil {
			return nil, fmt.Errorf("web UI: %w", err)
		}
	}
	return u, nil
}

func (u *UI) makeSealers(o Options) (err error) {
	key := o.Key
	if key == nil {
		key = cookies.NewKey()
	}
	if u.sessions, err = cookies.NewSealer(key, "session"); err != nil {
		return err
	}
	if u.refreshes, err = cookies.NewSealer(key, "refresh"); err != nil || o.OIDC == nil {
		return err
	}
	logins, err := cookies.NewSealer(key, "login")
	if err != nil {
		return err
	}
	u.oidc, err = newProvider(*o.OIDC, logins, u.now)
	return err
}

// ServePublic implements queryapi.UI.
func (u *UI) ServePublic(w http.ResponseWriter, r *http.Request, callers queryapi.UICallers) {
	name := strings.TrimPrefix(strings.TrimPrefix(r.URL.Path, root), "/")
	switch {
	case name == "session":
		u.serveSession(w, r, callers)
	case name == "oidc/login" && u.oidc != nil:
		u.serveLogin(w, r)
	case name == "oidc/callback" && u.oidc != nil:
		u.serveCallback(w, r, callers)
	case strings.HasPrefix(name, "session/"), name == "oidc", strings.HasPrefix(name, "oidc/"), name == "relay":
		notFound(w)
	default:
		u.files.serve(w, r, name)
	}
}

// ServeCaller implements queryapi.UI.
func (u *UI) ServeCaller(w http.ResponseWriter, r *http.Request, caller queryapi.UICaller) {
	if problem := u.checkOrigin(r); problem != nil {
		writeStatus(w, problem.Status())
		return
	}
	if why := u.cannotWrite(caller); why != "" {
		writeStatus(w, forbidden(why).Status())
		return
	}
	u.relay.serve(w, r, caller)
}

// cannotWrite returns why a caller may only look, "" where the hub decides.
func (u *UI) cannotWrite(caller queryapi.UICaller) string {
	switch {
	case u.relay == nil:
		return "there is no hub: nothing is written from here"
	case caller.Token == "":
		return "you are logged in with a client certificate, which cannot be sent on to the hub: you may look only"
	case !caller.OfHub && u.oidc != nil:
		return "your token is for federator, and not for the hub, whose API server decides what you may write: you may look only, or log in with " + u.oidc.options.Issuer
	case !caller.OfHub:
		return "your token is for federator, and not for the hub, whose API server decides what you may write: you may look only"
	}
	return ""
}
