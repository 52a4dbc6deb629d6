"""The right one of several continuations or answers: SWAG."""
