"use strict";
prozess.start();
