package openai

// An Error is the error object of the OpenAI API with its HTTP status.
type Error struct {
	Status  int // HTTP status; not part of the body
	Message string
	Type    string // "invalid_request_error", "server_error", …
	Param   string // the request's field at fault; null in the body when empty
	Code    string // for programs; null in the body when empty
	Detail  []byte // a JSON value for programs; left out when empty. Not part of OpenAI's object
}

func (e *Error) Error() string { return e.Message }

// Body returns the JSON object {"error":{…}}, which is also the data of an
// error event.
func (e *Error) Body() []byte {
	b := append(make([]byte, 0, 96+len(e.Message)), `{"error":{"message":`...)
	b = AppendString(b, e.Message)
	b = append(b, `,"type":`...)
	b = AppendString(b, e.Type)
	b = append(b, `,"param":`...)
	b = appendOrNull(b, e.Param)
	b = append(b, `,"code":`...)
	b = appendOrNull(b, e.Code)
	if len(e.Detail) > 0 {
		b = append(append(b, `,"detail":`...), e.Detail...)
	}
	return append(b, "}}"...)
}

func appendOrNull(b []byte, s string) []byte {
	if s == "" {
		return append(b, "null"...)
	}
	return AppendString(b, s)
}
