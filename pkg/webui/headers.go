package webui

import (
	"net/http"
	"strings"
)

// contentSecurityPolicy lets pages load and connect to what is served here, and nothing else:
// no inline scripts or styles, no frames, no string becomes HTML or a script.
const contentSecurityPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; " +
	"connect-src 'self'; worker-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; " +
	"require-trusted-types-for 'script'; trusted-types federator"

// permissions are the browser's features that pages may not use: those that browsers know, as they
// warn of each other one.
var permissions = strings.Join([]string{
	"accelerometer=()", "autoplay=()", "camera=()", "display-capture=()", "encrypted-media=()",
	"geolocation=()", "gyroscope=()", "hid=()", "identity-credentials-get=()", "idle-detection=()", "local-fonts=()", "magnetometer=()", "microphone=()",
	"midi=()", "payment=()", "picture-in-picture=()", "publickey-credentials-get=()", "screen-wake-lock=()", "serial=()",
	"usb=()", "xr-spatial-tracking=()",
}, ", ")

// SetHeaders implements queryapi.UI.
func (u *UI) SetHeaders(h http.Header) {
	h.Set("Content-Security-Policy", contentSecurityPolicy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "same-origin")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Permissions-Policy", permissions)
}
