"""This folder has the doubles, builders and generators that tests share."""
